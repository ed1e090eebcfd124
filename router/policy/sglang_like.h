// SglangLike: the rule of SGLang's router, policy cache_aware (sgl-router, defaults of 0.3:
// balance-abs-threshold 64, balance-rel-threshold 1.5, cache-threshold 0.3), over our index instead of a tree
// of texts.
//
//   n_i requests in flight
//   max n − min n > 64 and max n > 1.5 · min n  ->  least n_i
//   else deepest match > 0.3 of the prompt      ->  the deepest holder
//   else                                        ->  least n_i
#pragma once

#include "router/policy/policy.h"

namespace kvring::router {

class SglangLike : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;
};

}  // namespace kvring::router
