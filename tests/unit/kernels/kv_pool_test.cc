#include "kernels/kv_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/unit/kernels/random_floats.h"

namespace kvring::kernels {
namespace {

struct Case {
  Isa isa;
  int head_dim;
  KvType type;
};
std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Isa isa : SupportedIsas()) {
    for (const int head_dim : {8, 48}) {
      for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8})
        cases.push_back({isa, head_dim, type});
    }
  }
  return cases;
}
class KvPoolTest : public testing::TestWithParam<Case> {};
std::string CaseName(const testing::TestParamInfo<Case>& info) {
  constexpr const char* kTypes[] = {"F32", "F16", "Bf16", "Int8"};
  return std::string(NameOf(info.param.isa)) + kTypes[static_cast<int>(info.param.type)] +
         std::to_string(info.param.head_dim);
}
INSTANTIATE_TEST_SUITE_P(All, KvPoolTest, testing::ValuesIn(AllCases()), CaseName);

TEST_P(KvPoolTest, EverySlot_HoldsWhatWasWrittenAndNothingElseMoves) {
  const Case c = GetParam();
  const KvShape shape{2, 3, c.head_dim, 20, 4, c.type};
  EXPECT_EQ(shape.slots(), 32);
  KvPool pool(shape);
  Random random(1);
  // Small integers are exact in all types, in int8 because each head has a 127.
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
    for (int i = 0; i < 3 * c.head_dim; ++i) {
      keys.back().push_back(i % c.head_dim == 5 ? 127.0F : static_cast<float>(random.Below(127)));
      values.back().push_back(i % c.head_dim == 2 ? -127.0F : static_cast<float>(random.Below(127)));
    }
    pool.Write(c.isa, {layer, block, slot}, keys.back().data(), values.back().data());
  });
  pool.CopyBlock(BlockId{1}, BlockId{3});
  for_each([&](int layer, BlockId block, int slot, size_t n) {
    const size_t source = block.value == 3 ? n - 40 : n;
    for (int head = 0; head < 3; ++head) {
      const KvGroup group = pool.group(layer, head, block, slot / 16);
      for (int d = 0; d < c.head_dim; ++d) {
        const int64_t key = KeyIndex(c.type, slot % 16, d);
        const int64_t value = ValueIndex(c.type, c.head_dim, slot % 16, d);
        ASSERT_EQ(StoredNumber(shape, group.keys, slot % 16, key),
                  keys[source][static_cast<size_t>(head * c.head_dim + d)]);
        ASSERT_EQ(StoredNumber(shape, group.values, slot % 16, value),
                  values[source][static_cast<size_t>(head * c.head_dim + d)]);
      }
    }
  });
}

// What the header states: half a scale at most, the scale from the head's largest magnitude.
TEST(KvPoolInt8, RandomRows_ErrAtMostHalfTheirScale) {
  const KvShape shape{1, 2, 64, 16, 1, KvType::kInt8};
  KvPool pool(shape);
  Random random(3);
  for (int slot = 0; slot < 16; ++slot) {
    std::vector<float> keys = RandomFloats(random, 128);
    std::vector<float> values = RandomFloats(random, 128);
    for (float& value : values) value *= 1e-20F;
    if (slot == 7) std::fill(keys.begin(), keys.end(), 0.0F);
    pool.Write(Isa::kPlain, {0, BlockId{0}, slot}, keys.data(), values.data());
    for (int head = 0; head < 2; ++head) {
      const KvGroup group = pool.group(0, head, BlockId{0}, 0);
      const auto check = [&](const float* row, const std::byte* data, auto index) {
        float largest = 0;
        for (int d = 0; d < 64; ++d) largest = std::max(largest, std::fabs(row[d]));
        EXPECT_FLOAT_EQ(ScalesOf(data, 64)[slot], largest / 127);
        for (int d = 0; d < 64; ++d)
          ASSERT_LE(std::fabs(StoredNumber(shape, data, slot, index(d)) - row[d]), largest / 127 * 0.501F);
      };
      check(&keys[static_cast<size_t>(head * 64)], group.keys,
            [&](int d) { return KeyIndex(KvType::kInt8, slot, d); });
      check(&values[static_cast<size_t>(head * 64)], group.values,
            [&](int d) { return ValueIndex(KvType::kInt8, 64, slot, d); });
    }
  }
}

TEST(KvPoolF16, AnyNumber_IsRoundedToNearestAndHeldAtTheEnds) {
  const KvShape shape{1, 1, 16, 16, 1, KvType::kF16};
  const std::vector<float> row = {1e6F,   -1e6F, 65504,  65519.9F, 0.1F,    -0.1F, 1e-7F,      2049,
                                  2051.F, 0,     -2e-8F, 3.14159F, 1234.5F, 7e-5F, 6.0975e-5F, -65520};
  const float inside[] = {0.0999755859F, -0.0999755859F, 1.1920929e-07F, 2048, 2052};
  for (const Isa isa : SupportedIsas()) {
    KvPool pool(shape);
    pool.Write(isa, {0, BlockId{0}, 3}, row.data(), row.data());
    const KvGroup group = pool.group(0, 0, BlockId{0}, 0);
    const auto key = [&](int d) { return StoredNumber(shape, group.keys, 3, KeyIndex(KvType::kF16, 3, d)); };
    const auto value = [&](int d) {
      return StoredNumber(shape, group.values, 3, ValueIndex(KvType::kF16, 16, 3, d));
    };
    for (int d = 0; d < 16; ++d) {
      EXPECT_EQ(key(d), value(d));
      EXPECT_EQ(std::signbit(key(d)), std::signbit(row[static_cast<size_t>(d)]));
    }
    for (const int d : {0, 1, 2, 3, 15}) EXPECT_EQ(std::fabs(key(d)), 65504);
    for (int d = 4; d < 9; ++d) EXPECT_EQ(key(d), inside[d - 4]);
  }
}

TEST(KvShape, TokenBytes_CountTheScales) {
  EXPECT_EQ((KvShape{30, 3, 64, 16, 4, KvType::kF32}).token_bytes(), 46080);
  EXPECT_EQ((KvShape{30, 3, 64, 16, 4, KvType::kF16}).token_bytes(), 23040);
  EXPECT_EQ((KvShape{30, 3, 64, 16, 4, KvType::kBf16}).token_bytes(), 23040);
  const KvShape int8{30, 3, 64, 16, 4, KvType::kInt8};
  EXPECT_EQ(int8.token_bytes(), 2 * 30 * 3 * (64 + 4));
  EXPECT_EQ(int8.block_bytes(), 16 * int8.token_bytes());
}

}  // namespace
}  // namespace kvring::kernels
