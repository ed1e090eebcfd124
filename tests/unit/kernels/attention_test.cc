// Attention of every instruction set and KV type against a two-pass softmax in double over the keys and
// values given.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/half.h"
#include "tests/unit/kernels/random_floats.h"

namespace kvring::kernels {
namespace {

struct Model {
  int heads;
  int kv_heads;
  int head_dim;
  int block_size;
  int window;
  KvType type;
};

// One sequence with all its keys, values and queries, written through a shuffled block table.
struct Sequence {
  std::vector<BlockId> table;
  std::vector<float> q, k, v;
};

class Fixture {
 public:
  Fixture(const Model& model, int num_blocks)
      : model_(model), pool_({1, model.kv_heads, model.head_dim, model.block_size, num_blocks, model.type}) {
    for (int b = 0; b < num_blocks; ++b) free_.push_back(BlockId{b});
    for (size_t i = free_.size(); i > 1; --i) std::swap(free_[i - 1], free_[random_.Below(i)]);
  }

  Sequence Make(int length) {
    Sequence s;
    s.q = Rounded(static_cast<size_t>(length * model_.heads * model_.head_dim));
    s.k = Storable(length * model_.kv_heads);
    s.v = Storable(length * model_.kv_heads);
    const int64_t row = model_.kv_heads * model_.head_dim;
    for (int p = 0; p < length; ++p) {
      if (p % model_.block_size == 0) {
        s.table.push_back(free_.back());
        free_.pop_back();
      }
      pool_.Write(Isa::kPlain, {0, s.table.back(), p % model_.block_size}, s.k.data() + p * row,
                  s.v.data() + p * row);
    }
    return s;
  }

  AttentionContext context() const {
    return {&pool_, 0, {model_.heads, 1.0F / std::sqrt(static_cast<float>(model_.head_dim)), model_.window}};
  }

  double Expected(const Sequence& s, int position, int head, int d) const {
    const int kv_head = head / (model_.heads / model_.kv_heads);
    const auto kv = [&](const std::vector<float>& x, int p, int i) {
      return static_cast<double>(
          x[static_cast<size_t>((p * model_.kv_heads + kv_head) * model_.head_dim + i)]);
    };
    double total = 0;
    double sum = 0;
    for (int p = 0; p <= position; ++p) {
      if (model_.window > 0 && position - p >= model_.window) continue;
      double dot = 0;
      for (int i = 0; i < model_.head_dim; ++i) {
        dot += static_cast<double>(
                   s.q[static_cast<size_t>((position * model_.heads + head) * model_.head_dim + i)]) *
               kv(s.k, p, i);
      }
      const double weight = std::exp(dot / std::sqrt(static_cast<double>(model_.head_dim)));
      total += weight;
      sum += weight * kv(s.v, p, d);
    }
    return sum / total;
  }

  const Model& model() const { return model_; }

 private:
  // Values that bf16 holds exactly, so that storing them costs nothing.
  std::vector<float> Rounded(size_t n) {
    std::vector<float> values = RandomFloats(random_, n);
    for (float& value : values) value = Bf16ToFloat(FloatToBf16(value));
    return values;
  }

  // Heads' keys or values that the pool holds exactly: for int8, integers up to 127 (which occurs) times a
  // power of two of each head's own.
  std::vector<float> Storable(int rows) {
    const auto dim = static_cast<size_t>(model_.head_dim);
    std::vector<float> values = Rounded(static_cast<size_t>(rows) * dim);
    for (size_t i = 0; i < values.size() && model_.type == KvType::kInt8; i += dim) {
      const float scale = std::ldexp(1.0F, -5 - static_cast<int>(random_.Below(4)));
      for (size_t d = 0; d < dim; ++d)
        values[i + d] = scale * static_cast<float>(static_cast<int>(random_.Below(255)) - 127);
      values[i + random_.Below(dim)] = 127 * scale;
    }
    return values;
  }

  Model model_;
  Random random_{5};
  KvPool pool_;
  std::vector<BlockId> free_;
};

// Rows [first, first + rows) of s, appended to the batch.
struct Part {
  const Sequence* sequence;
  int first;
  int rows;
};

std::vector<std::vector<float>> Attend(Isa isa, const Fixture& fixture, const std::vector<Part>& parts) {
  const int64_t row = fixture.model().heads * fixture.model().head_dim;
  std::vector<std::vector<float>> outs;
  std::vector<AttentionRows> steps;
  for (const Part& part : parts) outs.emplace_back(static_cast<size_t>(part.rows * row));
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    steps.push_back({part.sequence->q.data() + part.first * row, outs[i].data(), part.rows, part.first,
                     part.sequence->table});
  }
  ThreadPool pool(2);
  Attention attention(isa);
  attention.Run(pool, fixture.context(), steps);
  return outs;
}

class AttentionTest : public testing::TestWithParam<Isa> {};
INSTANTIATE_TEST_SUITE_P(AllIsas, AttentionTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

// The double softmax is made anew for each value that is compared; under a sanitizer fewer are.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kComparedEvery = 67;
#else
constexpr int kComparedEvery = 5;
#endif

TEST_P(AttentionTest, ChunksAndDecodesTogether_EqualTheDoubleSoftmax) {
  for (const Model& model : {Model{9, 3, 64, 16, 0, KvType::kF32}, Model{9, 3, 64, 16, 0, KvType::kBf16},
                             Model{4, 4, 32, 5, 0, KvType::kF32}, Model{8, 1, 80, 32, 0, KvType::kBf16},
                             Model{6, 3, 128, 16, 40, KvType::kF32}, Model{2, 2, 64, 16, 300, KvType::kBf16},
                             Model{2, 1, 24, 7, 0, KvType::kBf16}, Model{9, 3, 64, 16, 0, KvType::kInt8},
                             Model{8, 1, 80, 32, 40, KvType::kInt8}, Model{4, 4, 32, 5, 0, KvType::kInt8},
                             Model{2, 1, 24, 7, 0, KvType::kInt8}, Model{9, 3, 64, 16, 0, KvType::kF16},
                             Model{8, 1, 80, 32, 40, KvType::kF16}, Model{2, 1, 24, 7, 0, KvType::kF16},
                             Model{5, 1, 128, 16, 300, KvType::kInt8}}) {
    Fixture fixture(model, 400);
    const Sequence a = fixture.Make(300);
    const Sequence b = fixture.Make(31);
    const Sequence c = fixture.Make(530);
    const std::vector<Part> parts = {{&a, 299, 1}, {&b, 0, 31}, {&c, 500, 30}, {&c, 510, 3}};
    const auto outs = Attend(GetParam(), fixture, parts);
    // bf16 rounds q (exact here after scaling only by luck) and the probabilities to 8 bits; int8 on AVX-512
    // both to 15.
    const double tolerance = model.type == KvType::kBf16 ? 2e-2 : model.type == KvType::kInt8 ? 2e-3 : 2e-5;
    for (size_t i = 0; i < parts.size(); ++i) {
      for (int r = 0; r < parts[i].rows; r += 3) {
        for (int at = 0; at < model.heads * model.head_dim; at += kComparedEvery) {
          const int head = at / model.head_dim;
          const double expected =
              fixture.Expected(*parts[i].sequence, parts[i].first + r, head, at % model.head_dim);
          ASSERT_NEAR(outs[i][static_cast<size_t>(r * model.heads * model.head_dim + at)], expected,
                      tolerance)
              << "part " << i << " row " << r << " head " << head << " head_dim " << model.head_dim;
        }
      }
    }
  }
}

TEST_P(AttentionTest, RowAlone_SameBitsAsInAChunk) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8}) {
    Fixture fixture({9, 3, 64, 16, 0, type}, 100);
    const Sequence s = fixture.Make(600);
    const auto chunk = Attend(GetParam(), fixture, {{&s, 540, 60}})[0];
    for (const int row : {0, 1, 17, 59}) {
      const auto alone = Attend(GetParam(), fixture, {{&s, 540 + row, 1}})[0];
      ASSERT_TRUE(std::equal(alone.begin(), alone.end(), chunk.begin() + row * 9 * 64)) << row;
    }
  }
}

// Blocks that have left the window are never read, so their table entries may be anything.
TEST_P(AttentionTest, Window_BlocksBeforeIt_AreNotTouched) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8}) {
    Fixture fixture({2, 1, 64, 16, 50, type}, 100);
    Sequence s = fixture.Make(400);
    const auto before = Attend(GetParam(), fixture, {{&s, 380, 20}, {&s, 399, 1}});
    for (int block = 0; block < (380 - 49) / 16; ++block)
      s.table[static_cast<size_t>(block)] = BlockId{1 << 30};
    const auto after = Attend(GetParam(), fixture, {{&s, 380, 20}, {&s, 399, 1}});
    EXPECT_EQ(before, after);
  }
}

}  // namespace
}  // namespace kvring::kernels
