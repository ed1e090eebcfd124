#include <cmath>

#include "kernels/rope.h"

#if KVRING_X86
#include <immintrin.h>
#endif

namespace kvring::kernels {
namespace {

#if KVRING_X86
// Products are rounded before they are added, as in the plain one: the results are the same bits.
KVRING_TARGET_AVX512 inline __m512 Rounded(__m512 product) {
  asm("" : "+v"(product));  // keeps the compiler from making it part of an FMA
  return product;
}

// head_dim % 16 == 0. Eight pairs at a time: cosines and sines are doubled up, and the neighbours swapped.
KVRING_TARGET_AVX512 void RopeAdjacentAvx512(const float* row, int head_dim, int heads, float* x) {
  const __m512i twice = _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0);
  constexpr __mmask16 kFirsts = 0x5555;
  const int half = head_dim / 2;
  for (int i = 0; i < half; i += 8) {
    const __m512 cosines = _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(row + i)));
    const __m512 sines =
        _mm512_permutexvar_ps(twice, _mm512_castps256_ps512(_mm256_loadu_ps(row + half + i)));
    for (int h = 0; h < heads; ++h) {
      float* at = x + h * head_dim + 2 * i;
      const __m512 v = _mm512_loadu_ps(at);
      const __m512 straight = Rounded(_mm512_mul_ps(v, cosines));
      const __m512 crossed = Rounded(_mm512_mul_ps(_mm512_permute_ps(v, 0xb1), sines));
      const __m512 sum = _mm512_add_ps(straight, crossed);
      _mm512_storeu_ps(at, _mm512_mask_sub_ps(sum, kFirsts, straight, crossed));
    }
  }
}

// head_dim % 32 == 0.
KVRING_TARGET_AVX512 void RopeHalvesAvx512(const float* row, int head_dim, int heads, float* x) {
  const int half = head_dim / 2;
  for (int i = 0; i < half; i += 16) {
    const __m512 cosines = _mm512_loadu_ps(row + i);
    const __m512 sines = _mm512_loadu_ps(row + half + i);
    for (int h = 0; h < heads; ++h) {
      float* at = x + h * head_dim + i;
      const __m512 a = _mm512_loadu_ps(at);
      const __m512 b = _mm512_loadu_ps(at + half);
      const __m512 a_cos = Rounded(_mm512_mul_ps(a, cosines));
      const __m512 a_sin = Rounded(_mm512_mul_ps(a, sines));
      _mm512_storeu_ps(at, _mm512_sub_ps(a_cos, Rounded(_mm512_mul_ps(b, sines))));
      _mm512_storeu_ps(at + half, _mm512_add_ps(a_sin, Rounded(_mm512_mul_ps(b, cosines))));
    }
  }
}
#endif

}  // namespace

std::vector<double> RopeFrequencies(int head_dim, double theta) {
  std::vector<double> frequencies;
  for (int i = 0; i < head_dim / 2; ++i) frequencies.push_back(std::pow(theta, -2.0 * i / head_dim));
  return frequencies;
}

void RopeTable::GrowTo(int64_t positions) {
  if (positions <= positions_) return;
  values_.resize(static_cast<size_t>(positions * head_dim()));
  const size_t half = frequencies_.size();
  for (int64_t p = positions_; p < positions; ++p) {
    float* row = values_.data() + p * head_dim();
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * frequencies_[i];
      row[i] = static_cast<float>(magnitude_ * std::cos(angle));
      row[half + i] = static_cast<float>(magnitude_ * std::sin(angle));
    }
  }
  positions_ = positions;
}

void Rope(Isa isa, RopePairs pairs, const float* row, int head_dim, int heads, float* x) {
#if KVRING_X86
  if (isa == Isa::kAvx512 && pairs == RopePairs::kAdjacent && head_dim % 16 == 0)
    return RopeAdjacentAvx512(row, head_dim, heads, x);
  if (isa == Isa::kAvx512 && pairs == RopePairs::kHalves && head_dim % 32 == 0)
    return RopeHalvesAvx512(row, head_dim, heads, x);
#endif
  (void)isa;
  RopePlain(pairs, row, head_dim, heads, x);
}

void RopePlain(RopePairs pairs, const float* row, int head_dim, int heads, float* x) {
  const int half = head_dim / 2;
  const int step = pairs == RopePairs::kAdjacent ? 2 : 1;
  const int distance = pairs == RopePairs::kAdjacent ? 1 : half;
  for (int h = 0; h < heads; ++h, x += head_dim) {
    for (int i = 0; i < half; ++i) {
      float& first = x[i * step];
      float& second = x[i * step + distance];
      const float a = first;
      const float b = second;
      first = a * row[i] - b * row[half + i];
      second = a * row[half + i] + b * row[i];
    }
  }
}

}  // namespace kvring::kernels
