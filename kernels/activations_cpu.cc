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

KVRING_TARGET_AVX512 void QuantizeRowAvx512(const float* x, int64_t n, QuantRow out) {
  for (int64_t b = 0; b < n / kQuantBlock; ++b) {
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
