#include <cmath>

#include "kernels/exp_avx2.h"
#include "kernels/exp_avx512.h"
#include "kernels/swiglu.h"

namespace kvring::kernels {
namespace {

#if KVRING_X86
// n % 8 == 0.
KVRING_TARGET_AVX2 void SwiGluAvx2(const float* gate, const float* up, int64_t n, float* y) {
  const __m256 one = _mm256_set1_ps(1.0F);
  for (int64_t i = 0; i < n; i += 8) {
    const __m256 g = _mm256_loadu_ps(gate + i);
    const __m256 e = ExpAvx2(_mm256_sub_ps(_mm256_setzero_ps(), g));
    const __m256 silu = _mm256_div_ps(g, _mm256_add_ps(one, e));
    _mm256_storeu_ps(y + i, _mm256_mul_ps(silu, _mm256_loadu_ps(up + i)));
  }
}

// n % 16 == 0.
KVRING_TARGET_AVX512 void SwiGluAvx512(const float* gate, const float* up, int64_t n, float* y) {
  const __m512 one = _mm512_set1_ps(1.0F);
  for (int64_t i = 0; i < n; i += 16) {
    const __m512 g = _mm512_loadu_ps(gate + i);
    const __m512 e = ExpAvx512(_mm512_sub_ps(_mm512_setzero_ps(), g));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, e));
    _mm512_storeu_ps(y + i, _mm512_mul_ps(silu, _mm512_loadu_ps(up + i)));
  }
}
#endif

}  // namespace

void SwiGluPlain(const float* gate, const float* up, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

void SwiGlu(Isa isa, const float* gate, const float* up, int64_t n, float* y) {
#if KVRING_X86
  if (isa == Isa::kAvx512 && n % 16 == 0) return SwiGluAvx512(gate, up, n, y);
  if (isa == Isa::kAvx2 && n % 8 == 0) return SwiGluAvx2(gate, up, n, y);
#endif
  (void)isa;
  SwiGluPlain(gate, up, n, y);
}

}  // namespace kvring::kernels
