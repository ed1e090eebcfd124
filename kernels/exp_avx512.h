// e^x on 16 lanes: 2^n * p(r) with n = round(x / ln 2) and a degree-6 Taylor polynomial on |r| <= ln 2 / 2 (relative error
// below 2e-7). Arguments below -87 give 0, above 88 saturate. For the AVX-512 kernels only.
#pragma once

#include "kernels/isa.h"

#if KVRING_X86
#include <immintrin.h>

namespace kvring::kernels {

KVRING_TARGET_AVX512 inline __m512 ExpAvx512(__m512 x) {
  const __mmask16 vanishes = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0F), _CMP_LT_OQ);
  const __m512 clamped = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.0F)), _mm512_set1_ps(88.0F));
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(clamped, _mm512_set1_ps(1.44269504F)), 0);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), clamped);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
  __m512 p = _mm512_set1_ps(1.0F / 720);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 120));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 24));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F / 6));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0F));
  return _mm512_mask_mov_ps(_mm512_scalef_ps(p, n), vanishes, _mm512_setzero_ps());
}

}  // namespace kvring::kernels
#endif
