// Lmetric: the product of the LMETRIC load indicator: no weights to tune.
//
//   cost_i = (W_i + u_i) · (B_i + 1), the lowest wins, ties drawn
//   W: prefill tokens dispatched and pending, u: uncached tokens of this prompt, B: requests in flight
//   (batch)
#pragma once

#include "router/policy/policy.h"

namespace kvring::router {

class Lmetric : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;
};

}  // namespace kvring::router
