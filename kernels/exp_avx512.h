// 2^x and e^x on 16 lanes, for the AVX-512 kernels: 2^n * p(r), n = round(x), p a Chebyshev fit of degree 5
// to 2^r on |r| <= 1/2 (relative error below 3e-7 with the roundings). Large negative arguments, -infinity
// excepted, give 0.
#pragma once

#include "kernels/isa.h"

#if KVRING_X86
#include <immintrin.h>

namespace kvring::kernels {

constexpr float kLog2E = 1.44269504088896F;

KVRING_TARGET_AVX512 inline __m512 Exp2Avx512(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x, 0);
  const __m512 r = _mm512_sub_ps(x, n);
  __m512 p = _mm512_set1_ps(0.001339086336F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.009676031918F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.05550357114F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.2402210749F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693147188F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.000000075F));
  return _mm512_scalef_ps(p, n);
}

/// Arguments up to 88; above, it saturates to 2^127.
KVRING_TARGET_AVX512 inline __m512 ExpAvx512(__m512 x) {
  return Exp2Avx512(_mm512_min_ps(_mm512_mul_ps(x, _mm512_set1_ps(kLog2E)), _mm512_set1_ps(127.0F)));
}

}  // namespace kvring::kernels
#endif
