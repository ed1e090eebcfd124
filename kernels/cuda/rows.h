// What a step does to whole rows: embedding, activations, biases, the choice of those whose logits are
// wanted. All are bound by memory: a thread per element, neighbours in neighbouring threads.
#pragma once

#include <cstdint>

#include "kernels/cuda/device.h"

namespace kvring::kernels::cuda {

/// x[r] = table[token of r] (+ positions[position of r]); table is vocab x width in bf16.
struct EmbedArguments {
  const uint16_t* table;
  const float* positions;  // context x width; null: none
  const int32_t* tokens;
  const int32_t* position;  // of each row
  int rows;
  int width;
  float* x;
};
void Embed(Stream& stream, const EmbedArguments& arguments);

/// y = silu(gate + gate_bias) * (up + up_bias), or gelu(up + up_bias) where gate is null; biases may be null.
/// Gelu by its tanh form. Reference: swiglu.h, gelu.h.
struct ActivationArguments {
  const float* gate;
  const float* gate_bias;
  const float* up;
  const float* up_bias;
  int rows;
  int width;
  uint16_t* y;  // bf16
};
void Activate(Stream& stream, const ActivationArguments& arguments);

/// x[r] += bias.
void AddBias(Stream& stream, float* x, const float* bias, int rows, int width);
/// y[i] = x[wanted[i]].
void GatherRows(Stream& stream, const float* x, const int32_t* wanted, int rows, int width, float* y);

}  // namespace kvring::kernels::cuda
