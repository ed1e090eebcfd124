#include "kernels/attention.h"

#include <algorithm>

namespace kvring::kernels {
namespace {

constexpr int32_t kTokensPerUnit = 16;
constexpr int kMaxVectorHeadDim = 256;

int32_t SpansOf(const AttentionContext& context, const AttentionRows& rows) {
  const KvShape& kv = context.pool->shape();
  const int32_t last = rows.first_position + rows.rows - 1;
  const int32_t group = last / kv.block_size * (kv.slots() / kSlotGroup) + last % kv.block_size / kSlotGroup;
  return group / kSpanGroups + 1;
}

void AttendHead(Isa isa, const AttentionContext& context, const AttentionRows& rows, int head) {
#if KVRING_X86
  if (isa != Isa::kPlain && context.head_dim() % 8 == 0) return AttendHeadAvx2(context, rows, head);
#endif
  (void)isa;
  AttendHeadPlain(context, rows, head);
}

}  // namespace

// Few tokens on a long context: one unit per span, merged afterwards.
void Attention::PlanSplit(const AttentionContext& context, const AttentionRows& rows, int32_t spans) {
  const int64_t states = static_cast<int64_t>(rows.rows) * context.group_heads();
  for (int head = 0; head < context.pool->shape().kv_heads; ++head) {
    for (int32_t span = 0; span < spans; ++span) {
      units_.push_back({&rows, head, 0, rows.rows, span, span + 1, partial_floats_});
    }
    merges_.push_back({&rows, head, 0, rows.rows, 0, spans, partial_floats_});
    partial_floats_ += states * StateFloats(context.head_dim()) * spans;
  }
}

void Attention::PlanStep(const AttentionContext& context, const AttentionRows& rows) {
  const int32_t spans = SpansOf(context, rows);
  if (rows.rows < kTokensPerUnit && spans > 1) return PlanSplit(context, rows, spans);
  // The last tokens see most: they are the longest units and go first.
  for (int32_t end = rows.rows; end > 0; end -= kTokensPerUnit) {
    for (int head = 0; head < context.pool->shape().kv_heads; ++head) {
      units_.push_back({&rows, head, std::max(0, end - kTokensPerUnit), end, 0, spans, kNoPartial});
    }
  }
}

#if KVRING_X86
void Attention::RunUnits(ThreadPool& threads, const AttentionContext& context,
                         std::span<const AttentionRows> steps) {
  units_.clear();
  merges_.clear();
  partial_floats_ = 0;
  for (const AttentionRows& rows : steps) PlanStep(context, rows);
  if (const auto bytes = static_cast<size_t>(partial_floats_) * 4; partials_.size_bytes() < bytes) {
    partials_ = AlignedBuffer(bytes * 2);
  }
  auto* partials = partials_.as<float>();
  const bool int8 = context.pool->shape().type == KvType::kInt8;
  const auto attend = int8 ? AttendInt8UnitAvx512 : AttendUnitAvx512;
  threads.Run(static_cast<int64_t>(units_.size()),
              [&](int64_t i) { attend(context, units_[static_cast<size_t>(i)], partials); });
  for (const AttentionUnit& merge : merges_) MergeSpansAvx512(context, merge, partials);
}
#endif

void Attention::Run(ThreadPool& threads, const AttentionContext& context,
                    std::span<const AttentionRows> steps) {
#if KVRING_X86
  const bool fits_units = context.head_dim() % 16 == 0 && context.head_dim() <= kMaxVectorHeadDim;
  if (isa_ == Isa::kAvx512 && fits_units) return RunUnits(threads, context, steps);
#endif
  const int64_t heads = context.shape.heads;
  threads.Run(static_cast<int64_t>(steps.size()) * heads, [&](int64_t i) {
    AttendHead(isa_, context, steps[static_cast<size_t>(i / heads)], static_cast<int>(i % heads));
  });
}

}  // namespace kvring::kernels
