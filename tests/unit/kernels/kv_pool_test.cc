#include "kernels/kv_pool.h"

#include <gtest/gtest.h>

#include "kernels/half.h"
#include "tests/unit/kernels/random_floats.h"

namespace kvring::kernels {
namespace {

float Read(KvType type, const std::byte* base, int64_t i) {
  if (type == KvType::kF32) return reinterpret_cast<const float*>(base)[i];
  return Bf16ToFloat(reinterpret_cast<const Bf16Bits*>(base)[i]);
}

class KvPoolTest : public testing::TestWithParam<KvType> {};
INSTANTIATE_TEST_SUITE_P(Types, KvPoolTest, testing::Values(KvType::kF32, KvType::kBf16));

TEST_P(KvPoolTest, EverySlot_HoldsWhatWasWrittenAndNothingElseMoves) {
  const KvShape shape{2, 3, 8, 20, 4, GetParam()};
  EXPECT_EQ(shape.slots(), 32);
  KvPool pool(shape);
  Random random(1);
  // Small integers are exact in both types.
  std::vector<std::vector<float>> keys, values;
  const auto for_each = [&](auto body) {
    size_t n = 0;
    for (int layer = 0; layer < 2; ++layer) {
      for (int block = 0; block < 4; ++block) {
        for (int slot = 0; slot < 20; ++slot) body(layer, BlockId{block}, slot, n++);
      }
    }
  };
  for_each([&](int layer, BlockId block, int slot, size_t) {
    keys.emplace_back();
    values.emplace_back();
    for (int i = 0; i < 24; ++i) {
      keys.back().push_back(static_cast<float>(random.Below(200)));
      values.back().push_back(static_cast<float>(random.Below(200)));
    }
    pool.Write({layer, block, slot}, keys.back().data(), values.back().data());
  });
  pool.CopyBlock(BlockId{1}, BlockId{3});
  for_each([&](int layer, BlockId block, int slot, size_t n) {
    const size_t source = block.value == 3 ? n - 40 : n;
    for (int head = 0; head < 3; ++head) {
      const KvGroup group = pool.group(layer, head, block, slot / 16);
      for (int d = 0; d < 8; ++d) {
        ASSERT_EQ(Read(GetParam(), group.keys, KeyIndex(GetParam(), slot % 16, d)),
                  keys[source][head * 8 + d]);
        ASSERT_EQ(Read(GetParam(), group.values, ValueIndex(GetParam(), 8, slot % 16, d)),
                  values[source][head * 8 + d]);
      }
    }
  });
}

}  // namespace
}  // namespace kvring::kernels
