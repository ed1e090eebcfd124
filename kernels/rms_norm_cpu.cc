#include <cmath>

#include "kernels/rms_norm.h"

#if KVRING_X86
#include <immintrin.h>
#endif

namespace kvring::kernels {
namespace {

#if KVRING_X86
// n % 16 == 0.
KVRING_TARGET_AVX512 void RmsNormAvx512(const float* x, int64_t n, const RmsNormParams& params, float* y) {
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    squares = _mm512_fmadd_ps(v, v, squares);
  }
  const float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(n);
  const __m512 factor = _mm512_set1_ps(1.0F / std::sqrt(mean + params.eps));
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 scaled = _mm512_mul_ps(_mm512_loadu_ps(x + i), factor);
    _mm512_storeu_ps(y + i, _mm512_mul_ps(scaled, _mm512_loadu_ps(params.weight + i)));
  }
}
#endif

}  // namespace

void RmsNormPlain(const float* x, int64_t n, const RmsNormParams& params, float* y) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const float factor = 1.0F / std::sqrt(static_cast<float>(squares / static_cast<double>(n)) + params.eps);
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * factor * params.weight[i];
}

void RmsNorm(Isa isa, const float* x, int64_t n, const RmsNormParams& params, float* y) {
#if KVRING_X86
  if (isa == Isa::kAvx512 && n % 16 == 0) return RmsNormAvx512(x, n, params, y);
#endif
  (void)isa;
  RmsNormPlain(x, n, params, y);
}

}  // namespace kvring::kernels
