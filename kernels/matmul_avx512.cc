// AVX-512 matmul: register tiles of up to 6 rows x 2 panels (32 outputs). Weights are unpacked in registers
// once per tile and block; activations are broadcast from L1. Per block of 32 columns and accumulator: 8
// vpdpbusd, then one conversion, one multiplication and one or two FMAs into f32.
#include <algorithm>
#include <cstring>

#include "kernels/matmul.h"

#if KVRING_X86
#include <immintrin.h>

namespace kvring::kernels {
namespace {

constexpr int kTileRows = 6;

// One register tile: pointers to its first row and first panel.
struct Corner {
  const std::byte* panel;
  int64_t panel_bytes;
  int64_t cols;
  const float* x;
  const int8_t* q;
  const float* scale;
  const float* offset;
  const int32_t* sum;
  float* y;
  int64_t stride;
  Store store;
  __mmask16 last_mask;     // outputs of the last panel that exist
  int64_t prefetch_bytes;  // how far ahead weights are asked for, 0: they are in the cache
};

template <int R, int P>
KVRING_TARGET_AVX512 inline void StoreTile(const Corner& c, const __m512 (&f)[R][P]) {
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      float* y = c.y + r * c.stride + p * kPanelRows;
      const __mmask16 mask = p == P - 1 ? c.last_mask : static_cast<__mmask16>(0xffff);
      __m512 value = f[r][p];
      if (c.store == Store::kAdd) value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, y));
      _mm512_mask_storeu_ps(y, mask, value);
    }
  }
}

KVRING_TARGET_AVX512 inline __m512i Broadcast4(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, 4);
  return _mm512_set1_epi32(four);
}

KVRING_TARGET_AVX512 inline __m512 LoadHalves(const std::byte* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

// Asks for the weights that the stream of panels comes to `ahead` bytes later.
template <int kBytes>
inline void PrefetchAhead(const std::byte* at, int64_t ahead) {
  if (ahead == 0) return;
#pragma GCC unroll 16
  for (int line = 0; line < kBytes; line += 64) __builtin_prefetch(at + ahead + line);
}

// Few accumulators leave the dot products waiting for each other; then low and high columns get one each.
template <int R, int P>
constexpr int kChains = R* P <= 4 ? 2 : 1;

template <int R, int P>
struct TileU4 {
  KVRING_TARGET_AVX512 static void Run(const Corner& c) {
    constexpr int kHigh = kChains<R, P> - 1;
    const int64_t blocks = c.cols / kQuantBlock;
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512 f[R][P] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* w = c.panel + b * kU4BlockBytes;
      const int8_t* q = c.q + b * kQuantBlock;
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) PrefetchAhead<kU4BlockBytes>(w + p * c.panel_bytes, c.prefetch_bytes);
      __m512i dot[kChains<R, P>][R][P] = {};
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        __m512i low[P];
        __m512i high[P];
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) {
          const __m512i raw = _mm512_loadu_si512(w + p * c.panel_bytes + g * 64);
          low[p] = _mm512_and_si512(raw, nibble);
          high[p] = _mm512_and_si512(_mm512_srli_epi16(raw, 4), nibble);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m512i x_low = Broadcast4(q + r * c.cols + g * 4);
#pragma GCC unroll 4
          for (int p = 0; p < P; ++p) dot[0][r][p] = _mm512_dpbusd_epi32(dot[0][r][p], low[p], x_low);
          const __m512i x_high = Broadcast4(q + r * c.cols + 16 + g * 4);
#pragma GCC unroll 4
          for (int p = 0; p < P; ++p)
            dot[kHigh][r][p] = _mm512_dpbusd_epi32(dot[kHigh][r][p], high[p], x_high);
        }
      }
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const __m512 d = LoadHalves(w + p * c.panel_bytes + 256);
        const __m512 m = LoadHalves(w + p * c.panel_bytes + 288);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          __m512i sum = dot[0][r][p];
          if constexpr (kHigh == 1) sum = _mm512_add_epi32(sum, dot[kHigh][r][p]);
          const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(c.scale[r * blocks + b]));
          f[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, f[r][p]);
          f[r][p] = _mm512_fmadd_ps(m, _mm512_set1_ps(c.offset[r * blocks + b]), f[r][p]);
        }
      }
    }
    StoreTile<R, P>(c, f);
  }
};

template <int R, int P>
struct TileU8 {
  KVRING_TARGET_AVX512 static void Run(const Corner& c) {
    constexpr int kOdd = kChains<R, P> - 1;
    const int64_t blocks = c.cols / kQuantBlock;
    __m512 f[R][P] = {};
    for (int64_t b = 0; b < blocks; ++b) {
      const std::byte* w = c.panel + b * kU8BlockBytes;
      const int8_t* q = c.q + b * kQuantBlock;
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) PrefetchAhead<kU8BlockBytes>(w + p * c.panel_bytes, c.prefetch_bytes);
      __m512i dot[kChains<R, P>][R][P] = {};
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512i start = _mm512_set1_epi32(-128 * c.sum[r * blocks + b]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) dot[0][r][p] = start;
      }
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        __m512i weights[P];
        const int chain = g % 2 * kOdd;
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) weights[p] = _mm512_loadu_si512(w + p * c.panel_bytes + g * 64);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const __m512i x = Broadcast4(q + r * c.cols + g * 4);
#pragma GCC unroll 4
          for (int p = 0; p < P; ++p) dot[chain][r][p] = _mm512_dpbusd_epi32(dot[chain][r][p], weights[p], x);
        }
      }
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) {
        const __m512 d = LoadHalves(w + p * c.panel_bytes + 512);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          __m512i sum = dot[0][r][p];
          if constexpr (kOdd == 1) sum = _mm512_add_epi32(sum, dot[kOdd][r][p]);
          const __m512 scale = _mm512_mul_ps(d, _mm512_set1_ps(c.scale[r * blocks + b]));
          f[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale, f[r][p]);
        }
      }
    }
    StoreTile<R, P>(c, f);
  }
};

template <int R, int P>
struct TileF32 {
  KVRING_TARGET_AVX512 static void Run(const Corner& c) {
    __m512 f[R][P] = {};
    for (int64_t k = 0; k < c.cols; ++k) {
      __m512 w[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) w[p] = _mm512_loadu_ps(c.panel + p * c.panel_bytes + k * 64);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 x = _mm512_set1_ps(c.x[r * c.cols + k]);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) f[r][p] = _mm512_fmadd_ps(w[p], x, f[r][p]);
      }
    }
    StoreTile<R, P>(c, f);
  }
};

template <int R, int P>
struct TileBf16 {
  KVRING_TARGET_AVX512 static void Run(const Corner& c) {
    __m512 f[R][P] = {};
    for (int64_t k = 0; k < c.cols; k += 2) {
      __m512i w[P];
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) w[p] = _mm512_loadu_si512(c.panel + p * c.panel_bytes + k * 32);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        double pair;  // two floats, rounded to a bf16 pair and broadcast
        std::memcpy(&pair, c.x + r * c.cols + k, 8);
        const __m128bh narrow = _mm_cvtneps_pbh(_mm_castpd_ps(_mm_set1_pd(pair)));
        const __m512i x = _mm512_broadcastd_epi32((__m128i)narrow);
#pragma GCC unroll 4
        for (int p = 0; p < P; ++p) f[r][p] = _mm512_dpbf16_ps(f[r][p], (__m512bh)w[p], (__m512bh)x);
      }
    }
    StoreTile<R, P>(c, f);
  }
};

Corner CornerOf(const MatMulTile& tile, int64_t row, int64_t panel, int64_t panels) {
  const PackedMatrix& w = *tile.output.weights;
  const Activations& x = *tile.x;
  const int64_t blocks = w.cols() / kQuantBlock;
  const int64_t last = std::min<int64_t>(kPanelRows, w.rows() - (panel + panels - 1) * kPanelRows);
  return {w.panel(panel),
          w.panel_bytes(),
          w.cols(),
          x.row(row),
          x.q() + row * w.cols(),
          x.scale() + row * blocks,
          x.offset() + row * blocks,
          x.sum() + row * blocks,
          tile.output.y + row * tile.output.stride + panel * kPanelRows,
          tile.output.stride,
          tile.output.store,
          static_cast<__mmask16>((1U << last) - 1U),
          0};
}

template <template <int, int> class Tile, int P>
void RunRows(const Corner& c, int64_t rows) {
  switch (rows) {
    case 1:
      return Tile<1, P>::Run(c);
    case 2:
      return Tile<2, P>::Run(c);
    case 3:
      return Tile<3, P>::Run(c);
    case 4:
      return Tile<4, P>::Run(c);
    case 5:
      return Tile<5, P>::Run(c);
    default:
      return Tile<kTileRows, P>::Run(c);
  }
}

// Few rows take one panel at a time: their weights are one stream through memory. More rows take two, and
// their first tile asks for the next two while it computes.
constexpr int64_t kOneStreamRows = 4;
constexpr int64_t kStreamPrefetchBytes = 4096;

template <template <int, int> class Tile>
void RunPanels(const MatMulTile& tile, int64_t panel, int64_t panels) {
  int64_t tiles = (tile.row_end - tile.row_begin + kTileRows - 1) / kTileRows;
  for (int64_t row = tile.row_begin; row < tile.row_end; --tiles) {
    const int64_t rows = (tile.row_end - row + tiles - 1) / tiles;
    Corner corner = CornerOf(tile, row, panel, panels);
    if (row == tile.row_begin)
      corner.prefetch_bytes = panels == 1 ? kStreamPrefetchBytes : 2 * corner.panel_bytes;
    if (panels == 2) {
      RunRows<Tile, 2>(corner, rows);
    } else {
      RunRows<Tile, 1>(corner, rows);
    }
    row += rows;
  }
}

template <template <int, int> class Tile>
void RunTile(const MatMulTile& tile) {
  const int64_t together = tile.row_end - tile.row_begin <= kOneStreamRows ? 1 : 2;
  for (int64_t panel = tile.panel_begin; panel < tile.panel_end; panel += together) {
    RunPanels<Tile>(tile, panel, std::min<int64_t>(together, tile.panel_end - panel));
  }
}

}  // namespace

void MatMulTileAvx512(const MatMulTile& tile) {
  switch (tile.output.weights->format()) {
    case WeightFormat::kF32:
      return RunTile<TileF32>(tile);
    case WeightFormat::kBf16:
      return RunTile<TileBf16>(tile);
    case WeightFormat::kU4:
      return RunTile<TileU4>(tile);
    case WeightFormat::kU8:
      return RunTile<TileU8>(tile);
    case WeightFormat::kBf16Rows:
      break;  // refused by MatMul
  }
}

}  // namespace kvring::kernels
#endif
