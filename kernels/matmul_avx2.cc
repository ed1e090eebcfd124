// AVX2 matmul for CPUs without AVX-512: tiles of up to 3 rows x 1 panel (two vectors of 8 outputs).
//   U4: vpmaddubsw sums stay in 16 bits for a whole block: 8 * 2 * 15 * 127 = 30,480 fits.
//   U8: |w| and the sign moved to x, so that 2 * 128 * 127 = 32,512 fits.
#include <algorithm>
#include <cstring>

#include "kernels/half.h"
#include "kernels/matmul.h"

#if KVRING_X86
#include <immintrin.h>

namespace kvring::kernels {
namespace {

constexpr int kTileRows = 3;
constexpr int kHalves = 2;  // vectors per panel

struct Corner {
  const std::byte* panel;
  int64_t cols;
  const float* x;
  const int8_t* q;
  const float* scale;
  const float* offset;
};

// Results of a tile: rows x 16 outputs.
using TileResult = float[kTileRows][kPanelRows];

KVRING_TARGET_AVX2 inline __m256i Load(const std::byte* at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
}

KVRING_TARGET_AVX2 inline __m256i Broadcast4(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, 4);
  return _mm256_set1_epi32(four);
}

KVRING_TARGET_AVX2 inline __m256 LoadHalves(const std::byte* at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}

// One block of 32 columns of 8 outputs against R rows of q, `stride` apart, as int32.
template <int R>
KVRING_TARGET_AVX2 inline void DotU4(const std::byte* w, const int8_t* q, int64_t stride, __m256i (&dot)[R]) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256i sums[R] = {};
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const __m256i raw = Load(w + g * 64);
    const __m256i low = _mm256_and_si256(raw, nibble);
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(raw, 4), nibble);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const int8_t* x = q + r * stride + g * 4;
      sums[r] = _mm256_add_epi16(sums[r], _mm256_maddubs_epi16(low, Broadcast4(x)));
      sums[r] = _mm256_add_epi16(sums[r], _mm256_maddubs_epi16(high, Broadcast4(x + 16)));
    }
  }
  for (int r = 0; r < R; ++r) dot[r] = _mm256_madd_epi16(sums[r], _mm256_set1_epi16(1));
}

template <int R>
KVRING_TARGET_AVX2 inline void DotU8(const std::byte* w, const int8_t* q, int64_t stride, __m256i (&dot)[R]) {
  for (int r = 0; r < R; ++r) dot[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256i weights = _mm256_xor_si256(Load(w + g * 64), _mm256_set1_epi8(-128));
    const __m256i size = _mm256_abs_epi8(weights);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256i x = _mm256_sign_epi8(Broadcast4(q + r * stride + g * 4), weights);
      const __m256i pairs = _mm256_maddubs_epi16(size, x);
      dot[r] = _mm256_add_epi32(dot[r], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
  }
}

template <int R>
KVRING_TARGET_AVX2 void RunU4(const Corner& c, TileResult& y) {
  const int64_t blocks = c.cols / kQuantBlock;
  for (int h = 0; h < kHalves; ++h) {
    __m256 f[R] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* w = c.panel + b * kU4BlockBytes;
      const __m256 d = LoadHalves(w + 256 + h * 16);
      const __m256 m = LoadHalves(w + 288 + h * 16);
      __m256i dots[R];
      DotU4<R>(w + h * 32, c.q + b * kQuantBlock, c.cols, dots);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 dot = _mm256_cvtepi32_ps(dots[r]);
        f[r] = _mm256_fmadd_ps(dot, _mm256_mul_ps(d, _mm256_set1_ps(c.scale[r * blocks + b])), f[r]);
        f[r] = _mm256_fmadd_ps(m, _mm256_set1_ps(c.offset[r * blocks + b]), f[r]);
      }
    }
    for (int r = 0; r < R; ++r) _mm256_storeu_ps(y[r] + h * 8, f[r]);
  }
}

template <int R>
KVRING_TARGET_AVX2 void RunU8(const Corner& c, TileResult& y) {
  const int64_t blocks = c.cols / kQuantBlock;
  for (int h = 0; h < kHalves; ++h) {
    __m256 f[R] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* w = c.panel + b * kU8BlockBytes;
      const __m256 d = LoadHalves(w + 512 + h * 16);
      __m256i dots[R];
      DotU8<R>(w + h * 32, c.q + b * kQuantBlock, c.cols, dots);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const __m256 dot = _mm256_cvtepi32_ps(dots[r]);
        f[r] = _mm256_fmadd_ps(dot, _mm256_mul_ps(d, _mm256_set1_ps(c.scale[r * blocks + b])), f[r]);
      }
    }
    for (int r = 0; r < R; ++r) _mm256_storeu_ps(y[r] + h * 8, f[r]);
  }
}

template <int R>
KVRING_TARGET_AVX2 void RunF32(const Corner& c, TileResult& y) {
  __m256 f[R][kHalves] = {};
  for (int64_t k = 0; k < c.cols; ++k) {
    const auto* w = reinterpret_cast<const float*>(c.panel) + k * kPanelRows;
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m256 x = _mm256_set1_ps(c.x[r * c.cols + k]);
      f[r][0] = _mm256_fmadd_ps(_mm256_loadu_ps(w), x, f[r][0]);
      f[r][1] = _mm256_fmadd_ps(_mm256_loadu_ps(w + 8), x, f[r][1]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int h = 0; h < kHalves; ++h) _mm256_storeu_ps(y[r] + h * 8, f[r][h]);
  }
}

template <int R>
KVRING_TARGET_AVX2 void RunBf16(const Corner& c, TileResult& y) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
  __m256 f[R][kHalves] = {};
  for (int64_t k = 0; k < c.cols; k += 2) {
    for (int h = 0; h < kHalves; ++h) {
      const __m256i pairs = Load(c.panel + k * 32 + h * 32);
      const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
      const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, upper));
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const float* x = c.x + r * c.cols + k;
        f[r][h] = _mm256_fmadd_ps(even, _mm256_set1_ps(Bf16ToFloat(FloatToBf16(x[0]))), f[r][h]);
        f[r][h] = _mm256_fmadd_ps(odd, _mm256_set1_ps(Bf16ToFloat(FloatToBf16(x[1]))), f[r][h]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int h = 0; h < kHalves; ++h) _mm256_storeu_ps(y[r] + h * 8, f[r][h]);
  }
}

template <int R>
void RunRows(WeightFormat format, const Corner& c, TileResult& y) {
  switch (format) {
    case WeightFormat::kF32:
      return RunF32<R>(c, y);
    case WeightFormat::kBf16:
      return RunBf16<R>(c, y);
    case WeightFormat::kU4:
      return RunU4<R>(c, y);
    case WeightFormat::kU8:
      return RunU8<R>(c, y);
    case WeightFormat::kBf16Rows:
      break;  // refused by MatMul
  }
}

void RunTile(const MatMulTile& tile, int64_t row, int64_t rows, int64_t panel) {
  const PackedMatrix& w = *tile.output.weights;
  const Activations& x = *tile.x;
  const int64_t blocks = w.cols() / kQuantBlock;
  const Corner corner{
      w.panel(panel),           w.cols(), x.row(row), x.q() + row * w.cols(), x.scale() + row * blocks,
      x.offset() + row * blocks};
  TileResult result;
  if (rows == 1) {
    RunRows<1>(w.format(), corner, result);
  } else if (rows == 2) {
    RunRows<2>(w.format(), corner, result);
  } else {
    RunRows<kTileRows>(w.format(), corner, result);
  }
  const int64_t outputs = std::min<int64_t>(kPanelRows, w.rows() - panel * kPanelRows);
  for (int64_t r = 0; r < rows; ++r) {
    float* y = tile.output.y + (row + r) * tile.output.stride + panel * kPanelRows;
    for (int64_t o = 0; o < outputs; ++o)
      y[o] = (tile.output.store == Store::kAdd ? y[o] : 0.0F) + result[r][o];
  }
}

}  // namespace

void MatMulTileAvx2(const MatMulTile& tile) {
  for (int64_t panel = tile.panel_begin; panel < tile.panel_end; ++panel) {
    for (int64_t row = tile.row_begin; row < tile.row_end; row += kTileRows) {
      RunTile(tile, row, std::min<int64_t>(kTileRows, tile.row_end - row), panel);
    }
  }
}

}  // namespace kvring::kernels
#endif
