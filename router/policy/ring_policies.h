// Policies that place by a key on the bounded-load ring (ring.h); equal member sets give equal placement on
// all routers.
//   session-ring  key = session; without one the prompt's head (which the router counts and warns of)
//   prefix-ring   key = the prompt's first 1,024 bytes, or all of a shorter one. A fixed head is a known trap
//                 where all prompts begin alike; cache-aware is the answer to it, this is the baseline
#pragma once

#include "router/policy/policy.h"
#include "router/policy/ring.h"

namespace kvring::router {

class SessionRing : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;
  bool wants_session() const override { return true; }

 private:
  Ring ring_;
};

class PrefixRing : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

 private:
  Ring ring_;
};

}  // namespace kvring::router
