// Policies that look at no load and no cache: the floor that others are measured against.
//   round-robin  smooth weighted rotation: credit_i += w_i; the largest credit is chosen and pays Σ w
//   random       i with probability w_i / Σ w
#pragma once

#include "router/policy/policy.h"

namespace kvring::router {

class RoundRobin : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

 private:
  struct Credit {
    ReplicaId id;
    double value = 0;
  };
  std::vector<Credit> credits_;  // by slot
};

class RandomChoice : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;
};

}  // namespace kvring::router
