#include "kernels/matmul.h"

#include <algorithm>
#include <vector>

#include "common/check.h"

namespace kvring::kernels {
namespace {

constexpr int64_t kRowsPerTask = 192;              // activations of a task stay in L2
constexpr int64_t kWeightBytesPerTask = 48 << 10;  // for few rows: long enough to hide the claim

void ComputeTile(Isa isa, const MatMulTile& tile) {
#if KVRING_X86
  if (isa == Isa::kAvx512) return MatMulTileAvx512(tile);
  if (isa == Isa::kAvx2) return MatMulTileAvx2(tile);
#endif
  (void)isa;
  MatMulTilePlain(tile);
}

// Panels per task: an even number, fewer when there are many rows.
int64_t PanelsPerTask(const PackedMatrix& weights, int64_t rows) {
  const int64_t by_bytes = kWeightBytesPerTask / weights.panel_bytes() / std::max<int64_t>(1, rows / 8);
  return std::max<int64_t>(2, by_bytes / 2 * 2);
}

void AddTiles(const Activations& x, const MatMulOutput& output, std::vector<MatMulTile>& tiles) {
  const int64_t panels = output.weights->panels();
  const int64_t step = PanelsPerTask(*output.weights, x.rows());
  for (int64_t row = 0; row < x.rows(); row += kRowsPerTask) {
    const int64_t row_end = std::min(row + kRowsPerTask, x.rows());
    for (int64_t panel = 0; panel < panels; panel += step) {
      tiles.push_back({&x, output, row, row_end, panel, std::min(panel + step, panels)});
    }
  }
}

}  // namespace

void MatMul(Isa isa, ThreadPool& pool, const Activations& x, std::span<const MatMulOutput> outputs) {
  static thread_local std::vector<MatMulTile> tiles;
  tiles.clear();
  for (const MatMulOutput& output : outputs) {
    KVRING_CHECK(output.weights->cols() == x.cols());
    KVRING_CHECK(output.weights->format() != WeightFormat::kBf16Rows);
    AddTiles(x, output, tiles);
  }
  std::span<const MatMulTile> all = tiles;
  pool.Run(static_cast<int64_t>(all.size()),
           [&](int64_t i) { ComputeTile(isa, all[static_cast<size_t>(i)]); });
}

}  // namespace kvring::kernels
