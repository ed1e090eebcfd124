// What a step costs on hardware that is not at hand. Estimates, not measurements: prefill at 45 % of the
// card's dense bf16 peak over 2 · parameters FLOP per token; a decode step reads the weights once at 70 % of
// the memory bandwidth and each sequence's KV cache besides; a fixed host part of 2 ms. Peaks and bandwidths
// from the vendors' data sheets (A100 SXM 80 GB: 312 TFLOP/s, 2.0 TB/s; H100 SXM: 989, 3.35; H200: 989, 4.8;
// L40S: 362, 0.86). KV bytes per token by kv_size.h in bf16. 70B classes on 4 cards, all of them one replica.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/timed_executor.h"

namespace kvring::sim {

struct ExecutorPreset {
  std::string name;  // "h100-8b"
  StepCostModel cost;
  int64_t kv_tokens = 0;  // that fit beside the weights in 90 % of the memory
};

/// All of them, by name.
std::vector<ExecutorPreset> ExecutorPresets();
std::optional<ExecutorPreset> FindExecutorPreset(std::string_view name);

}  // namespace kvring::sim
