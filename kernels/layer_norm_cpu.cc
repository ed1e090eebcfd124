#include <cmath>

#include "kernels/layer_norm.h"

#if KVRING_X86
#include <immintrin.h>
#endif

namespace kvring::kernels {
namespace {

#if KVRING_X86
// n % 16 == 0.
KVRING_TARGET_AVX512 void LayerNormAvx512(const float* x, int64_t n, const LayerNormParams& params,
                                          float* y) {
  __m512 sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) sum = _mm512_add_ps(sum, _mm512_loadu_ps(x + i));
  const __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(sum) / static_cast<float>(n));
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_sub_ps(_mm512_loadu_ps(x + i), mean);
    squares = _mm512_fmadd_ps(v, v, squares);
  }
  const float variance = _mm512_reduce_add_ps(squares) / static_cast<float>(n);
  const __m512 factor = _mm512_set1_ps(1.0F / std::sqrt(variance + params.eps));
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_sub_ps(_mm512_loadu_ps(x + i), mean), factor);
    const __m512 bias = params.bias != nullptr ? _mm512_loadu_ps(params.bias + i) : _mm512_setzero_ps();
    _mm512_storeu_ps(y + i, _mm512_fmadd_ps(scaled, _mm512_loadu_ps(params.weight + i), bias));
  }
}
#endif

}  // namespace

void LayerNormPlain(const float* x, int64_t n, const LayerNormParams& params, float* y) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  const double mean = sum / static_cast<double>(n);
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
  const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + static_cast<double>(params.eps));
  for (int64_t i = 0; i < n; ++i) {
    const double bias = params.bias != nullptr ? params.bias[i] : 0;
    y[i] = static_cast<float>((x[i] - mean) * factor * params.weight[i] + bias);
  }
}

void LayerNorm(Isa isa, const float* x, int64_t n, const LayerNormParams& params, float* y) {
#if KVRING_X86
  if (isa == Isa::kAvx512 && n % 16 == 0) return LayerNormAvx512(x, n, params, y);
#endif
  (void)isa;
  LayerNormPlain(x, n, params, y);
}

}  // namespace kvring::kernels
