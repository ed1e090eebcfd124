// RoPE (Su et al. 2021): pair i of a head turns by position * frequency_i, theta^(-2i/head_dim) unless a
// scaling of the model changes it; yarn also multiplies the turned values by a magnitude. Which two elements
// form pair i depends on the file: kAdjacent (2i, 2i+1), the Llama family in GGUF, whose Q/K rows are
// permuted for it; kHalves (i, i + head_dim/2), the Hugging Face order (Qwen, safetensors). RopeTable holds
// cos and sin per position, grown on demand by its one owner.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/isa.h"

namespace kvring::kernels {

enum class RopePairs { kAdjacent, kHalves };

/// theta^(-2i/head_dim) for i < head_dim/2.
std::vector<double> RopeFrequencies(int head_dim, double theta);

class RopeTable {
 public:
  /// One frequency per pair.
  explicit RopeTable(std::vector<double> frequencies, double magnitude = 1)
      : frequencies_(std::move(frequencies)), magnitude_(magnitude) {}

  /// Makes rows for positions [0, positions).
  void GrowTo(int64_t positions);
  int head_dim() const { return 2 * static_cast<int>(frequencies_.size()); }
  /// head_dim/2 cosines, then as many sines.
  const float* row(int64_t position) const { return values_.data() + position * head_dim(); }

 private:
  std::vector<double> frequencies_;
  double magnitude_;
  int64_t positions_ = 0;
  std::vector<float> values_;
};

/// Turns `heads` consecutive heads in place. row is RopeTable::row of the token's position.
void Rope(Isa isa, RopePairs pairs, const float* row, int head_dim, int heads, float* x);
void RopePlain(RopePairs pairs, const float* row, int head_dim, int heads, float* x);

}  // namespace kvring::kernels
