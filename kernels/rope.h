// RoPE (Su et al. 2021): pair i of a head turns by position * theta^(-2i/head_dim). Which two elements form
// pair i depends on the file: kAdjacent (2i, 2i+1), the Llama family in GGUF, whose Q/K rows are permuted for
// it; kHalves (i, i + head_dim/2), the Hugging Face order (Qwen, safetensors). RopeTable holds cos and sin
// per position, grown on demand by its one owner.
#pragma once

#include <cstdint>
#include <vector>

namespace kvring::kernels {

enum class RopePairs { kAdjacent, kHalves };

class RopeTable {
 public:
  RopeTable(int head_dim, double theta) : head_dim_(head_dim), theta_(theta) {}

  /// Makes rows for positions [0, positions).
  void GrowTo(int64_t positions);
  int head_dim() const { return head_dim_; }
  /// head_dim/2 cosines, then as many sines.
  const float* row(int64_t position) const { return values_.data() + position * head_dim_; }

 private:
  int head_dim_;
  double theta_;
  int64_t positions_ = 0;
  std::vector<float> values_;
};

/// Turns `heads` consecutive heads in place. row is RopeTable::row of the token's position.
void Rope(RopePairs pairs, const float* row, int head_dim, int heads, float* x);

}  // namespace kvring::kernels
