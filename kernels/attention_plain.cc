#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention.h"

namespace kvring::kernels {
namespace {

// One query head at one position.
void AttendRow(const AttentionContext& context, const AttentionRows& rows, int32_t row, int head) {
  const KvShape& kv = context.pool->shape();
  const int64_t at = (static_cast<int64_t>(row) * context.shape.heads + head) * kv.head_dim;
  const int32_t position = rows.first_position + row;
  const int32_t first = context.first_visible(position);
  const auto group = [&](int32_t p) {
    return context.pool->group(context.layer, head / context.group_heads(), rows.table[p / kv.block_size],
                               p % kv.block_size / kSlotGroup);
  };
  std::vector<double> weights;
  double peak = -INFINITY;
  for (int32_t p = first; p <= position; ++p) {
    double dot = 0;
    for (int d = 0; d < kv.head_dim; ++d) {
      const int slot = p % kv.block_size % kSlotGroup;
      dot += static_cast<double>(rows.q[at + d]) *
             StoredNumber(kv, group(p).keys, slot, KeyIndex(kv.type, slot, d));
    }
    weights.push_back(dot * context.shape.scale);
    peak = std::max(peak, weights.back());
  }
  double total = 0;
  for (double& weight : weights) total += weight = std::exp(weight - peak);
  for (int d = 0; d < kv.head_dim; ++d) {
    double sum = 0;
    for (int32_t p = first; p <= position; ++p) {
      const int slot = p % kv.block_size % kSlotGroup;
      sum += weights[static_cast<size_t>(p - first)] *
             StoredNumber(kv, group(p).values, slot, ValueIndex(kv.type, kv.head_dim, slot, d));
    }
    rows.out[at + d] = static_cast<float>(sum / total);
  }
}

}  // namespace

void AttendHeadPlain(const AttentionContext& context, const AttentionRows& rows, int head) {
  for (int32_t row = 0; row < rows.rows; ++row) AttendRow(context, rows, row, head);
}

}  // namespace kvring::kernels
