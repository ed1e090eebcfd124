// KubeaiChwbl: KubeAI's PrefixHash load balancing at its defaults: consistent hashing with bounded loads
// (ring.h), load factor 1.25, keyed by the prompt's first 100 characters (prefixCharLength); of a prompt of
// token ids, by as many bytes of them. All prompts that begin alike share one home and what spills from it.
#pragma once

#include "router/policy/policy.h"
#include "router/policy/ring.h"

namespace kvring::router {

class KubeaiChwbl : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

 private:
  Ring ring_;
};

}  // namespace kvring::router
