#include <algorithm>
#include <cmath>

#include "kernels/activations.h"

#if KVRING_X86
#include <immintrin.h>
#endif

namespace kvring::kernels {
namespace {

void Grow(AlignedBuffer& buffer, int64_t bytes) {
  if (static_cast<int64_t>(buffer.size_bytes()) < bytes) buffer = AlignedBuffer(static_cast<size_t>(bytes));
}

#if KVRING_X86
KVRING_TARGET_AVX2 void QuantizeRowAvx2(const float* x, int64_t n, QuantRow out) {
  const __m256 positive = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
  for (int64_t b = 0; b < n / kQuantBlock; ++b) {
    const float* block = x + b * kQuantBlock;
    __m256 peaks = _mm256_setzero_ps();
    for (int k = 0; k < kQuantBlock; k += 8) {
      peaks = _mm256_max_ps(peaks, _mm256_and_ps(_mm256_loadu_ps(block + k), positive));
    }
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, peaks);
    const float peak = *std::max_element(lanes, lanes + 8);
    const __m256 inverse = _mm256_set1_ps(peak > 0 ? 127.0F / peak : 0.0F);
    int32_t sum = 0;
    for (int k = 0; k < kQuantBlock; k += 8) {
      alignas(32) int32_t q[8];
      const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(block + k), inverse);
      _mm256_store_si256(reinterpret_cast<__m256i*>(q), _mm256_cvtps_epi32(scaled));
      for (int i = 0; i < 8; ++i) out.q[b * kQuantBlock + k + i] = static_cast<int8_t>(q[i]);
      for (int i = 0; i < 8; ++i) sum += q[i];
    }
    out.scale[b] = peak / 127.0F;
    out.sum[b] = sum;
    out.offset[b] = out.scale[b] * static_cast<float>(sum);
  }
}

// The largest lane of each of four vectors.
KVRING_TARGET_AVX512 inline __m128 MaxOfEach(const __m512 (&v)[4]) {
  const __m512 ab = _mm512_max_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 cd = _mm512_max_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512 low = _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const __m512 high = _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd)));
  const __m512 quads = _mm512_max_ps(low, high);  // each quarter: a, b, c, d of its quarter
  const __m256 halves = _mm256_max_ps(_mm512_castps512_ps256(quads), _mm512_extractf32x8_ps(quads, 1));
  return _mm_max_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

// Blocks [b, b + 4): their horizontal sums and maxima share their shuffles.
KVRING_TARGET_AVX512 inline void QuantizeFourBlocks(const float* x, int64_t b, const QuantRow& out) {
  __m512 low[4];
  __m512 high[4];
  __m512 peaks[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    low[i] = _mm512_loadu_ps(x + (b + i) * 32);
    high[i] = _mm512_loadu_ps(x + (b + i) * 32 + 16);
    peaks[i] = _mm512_max_ps(_mm512_abs_ps(low[i]), _mm512_abs_ps(high[i]));
  }
  const __m128 peak = MaxOfEach(peaks);
  const __mmask8 some = _mm_cmp_ps_mask(peak, _mm_setzero_ps(), _CMP_GT_OQ);
  const __m512 inverse = _mm512_castps128_ps512(_mm_maskz_div_ps(some, _mm_set1_ps(127.0F), peak));
  __m128i sums = _mm_setzero_si128();
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 factor = _mm512_permutexvar_ps(_mm512_set1_epi32(i), inverse);
    const __m512i low_q = _mm512_cvtps_epi32(_mm512_mul_ps(low[i], factor));
    const __m512i high_q = _mm512_cvtps_epi32(_mm512_mul_ps(high[i], factor));
    auto* q = reinterpret_cast<__m128i*>(out.q + (b + i) * 32);
    _mm_storeu_si128(q, _mm512_cvtsepi32_epi8(low_q));
    _mm_storeu_si128(q + 1, _mm512_cvtsepi32_epi8(high_q));
    const __m512i both = _mm512_add_epi32(low_q, high_q);
    const __m256i halves = _mm256_add_epi32(_mm512_castsi512_si256(both), _mm512_extracti32x8_epi32(both, 1));
    const __m128i quarter =
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    const __m128i pair = _mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4e));
    const __m128i all = _mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xb1));
    sums = _mm_mask_mov_epi32(sums, static_cast<__mmask8>(1U << i), all);
  }
  const __m128 scale = _mm_div_ps(peak, _mm_set1_ps(127.0F));
  _mm_storeu_ps(out.scale + b, scale);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.sum + b), sums);
  _mm_storeu_ps(out.offset + b, _mm_mul_ps(scale, _mm_cvtepi32_ps(sums)));
}

KVRING_TARGET_AVX512 inline void QuantizeBlock(const float* x, int64_t b, const QuantRow& out) {
  const __m512 low = _mm512_loadu_ps(x + b * 32);
  const __m512 high = _mm512_loadu_ps(x + b * 32 + 16);
  const float peak = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(low), _mm512_abs_ps(high)));
  const __m512 inverse = _mm512_set1_ps(peak > 0 ? 127.0F / peak : 0.0F);
  const __m512i low_q = _mm512_cvtps_epi32(_mm512_mul_ps(low, inverse));
  const __m512i high_q = _mm512_cvtps_epi32(_mm512_mul_ps(high, inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + b * 32), _mm512_cvtsepi32_epi8(low_q));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out.q + b * 32 + 16), _mm512_cvtsepi32_epi8(high_q));
  const int32_t sum = _mm512_reduce_add_epi32(_mm512_add_epi32(low_q, high_q));
  out.scale[b] = peak / 127.0F;
  out.sum[b] = sum;
  out.offset[b] = out.scale[b] * static_cast<float>(sum);
}

KVRING_TARGET_AVX512 void QuantizeRowAvx512(const float* x, int64_t n, QuantRow out) {
  const int64_t blocks = n / kQuantBlock;
  int64_t b = 0;
  for (; b + 4 <= blocks; b += 4) QuantizeFourBlocks(x, b, out);
  for (; b < blocks; ++b) QuantizeBlock(x, b, out);
}
#endif

}  // namespace

void QuantizeRowPlain(const float* x, int64_t n, QuantRow out) {
  for (int64_t b = 0; b < n / kQuantBlock; ++b) {
    const float* block = x + b * kQuantBlock;
    float peak = 0;
    for (int k = 0; k < kQuantBlock; ++k) peak = std::max(peak, std::fabs(block[k]));
    const float inverse = peak > 0 ? 127.0F / peak : 0.0F;
    int32_t sum = 0;
    for (int k = 0; k < kQuantBlock; ++k) {
      const auto q = static_cast<int8_t>(std::nearbyint(block[k] * inverse));
      out.q[b * kQuantBlock + k] = q;
      sum += q;
    }
    out.scale[b] = peak / 127.0F;
    out.sum[b] = sum;
    out.offset[b] = out.scale[b] * static_cast<float>(sum);
  }
}

void QuantizeRow(Isa isa, const float* x, int64_t n, QuantRow out) {
#if KVRING_X86
  if (isa == Isa::kAvx512) return QuantizeRowAvx512(x, n, out);
  if (isa == Isa::kAvx2) return QuantizeRowAvx2(x, n, out);
#endif
  (void)isa;
  QuantizeRowPlain(x, n, out);
}

void Activations::Resize(int64_t rows, int64_t cols) {
  rows_ = rows;
  cols_ = cols;
  const int64_t blocks = rows * ((cols + kQuantBlock - 1) / kQuantBlock);
  Grow(values_, rows * cols * 4);
  Grow(q_, rows * cols);
  Grow(scale_, blocks * 4);
  Grow(offset_, blocks * 4);
  Grow(sum_, blocks * 4);
}

QuantRow Activations::quant_row(int64_t r) {
  const int64_t blocks = cols_ / kQuantBlock;
  return {q_.as<int8_t>() + r * cols_, scale_.as<float>() + r * blocks, offset_.as<float>() + r * blocks,
          sum_.as<int32_t>() + r * blocks};
}

}  // namespace kvring::kernels
