#include <cmath>

#include "kernels/exp_avx512.h"
#include "kernels/gelu.h"

namespace kvring::kernels {
namespace {

constexpr float kMinusTwoRoot = -1.5957691216057308F;  // -2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;

#if KVRING_X86
// n % 16 == 0.
KVRING_TARGET_AVX512 void GeluAvx512(const float* x, int64_t n, float* y) {
  const __m512 one = _mm512_set1_ps(1.0F);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 v = _mm512_loadu_ps(x + i);
    const __m512 inner = _mm512_fmadd_ps(_mm512_mul_ps(v, v), _mm512_set1_ps(kCubic), one);
    const __m512 exponent = _mm512_mul_ps(_mm512_mul_ps(v, inner), _mm512_set1_ps(kMinusTwoRoot));
    _mm512_storeu_ps(y + i, _mm512_div_ps(v, _mm512_add_ps(one, ExpAvx512(exponent))));
  }
}
#endif

}  // namespace

void GeluPlain(const float* x, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    y[i] = x[i] / (1.0F + std::exp(kMinusTwoRoot * x[i] * (1.0F + kCubic * x[i] * x[i])));
  }
}

void Gelu(Isa isa, const float* x, int64_t n, float* y) {
#if KVRING_X86
  if (isa == Isa::kAvx512 && n % 16 == 0) return GeluAvx512(x, n, y);
#endif
  (void)isa;
  GeluPlain(x, n, y);
}

}  // namespace kvring::kernels
