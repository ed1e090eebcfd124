// Policies that look at load alone. Ties are drawn uniformly.
//   least-requests        argmin (n_i + 1) / w_i     n: requests in flight
//   least-prefill-tokens  argmin (W_i + u_i) / R_i   W: prefill tokens dispatched and pending; u: uncached
//                                                    tokens of this prompt; R: learnt tokens/s
//   power-of-two          of two drawn at random, the one with less (n_i + 1) / w_i (Mitzenmacher 2001)
// A load report that is stale or absent is never read as zero: this router's own counts remain.
#pragma once

#include "router/policy/policy.h"

namespace kvring::router {

class LeastRequests : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;
};

class LeastPrefillTokens : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;
};

class PowerOfTwo : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;
};

}  // namespace kvring::router
