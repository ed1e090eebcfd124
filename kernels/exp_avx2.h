// e^x on 8 lanes for the AVX2 kernels: the polynomial of exp_avx512.h, the power of two put into the
// exponent. Arguments are held to [-87, 88].
#pragma once

#include "kernels/isa.h"

#if KVRING_X86
#include <immintrin.h>

namespace kvring::kernels {

KVRING_TARGET_AVX2 inline __m256 ExpAvx2(__m256 x) {
  const __m256 held = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.0F)), _mm256_set1_ps(88.0F));
  const __m256 y = _mm256_mul_ps(held, _mm256_set1_ps(1.44269504088896F));
  const __m256 n = _mm256_round_ps(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 r = _mm256_sub_ps(y, n);
  __m256 p = _mm256_set1_ps(0.001339086336F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.009676031918F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.05550357114F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.2402210749F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.693147188F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.000000075F));
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

}  // namespace kvring::kernels
#endif
