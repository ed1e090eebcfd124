// Every CUDA kernel's own source, on the host shim, against double-precision formulas: last partial blocks,
// windows, grouped queries of 1 to 8, heads of 64 to 128, batches of 1 to 7. Each result has the same bits
// under every order of the threads.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "common/random.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/norm.h"
#include "kernels/cuda/paged_kv.h"
#include "kernels/cuda/rows.h"
#include "kernels/half.h"
#include "kernels/rope.h"

namespace kvring::kernels::cuda {
namespace {

class CudaKernelsTest : public testing::Test {
 protected:
  std::vector<float> Random1(size_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& v : values) v = scale * static_cast<float>(random_.Uniform() * 2 - 1);
    return values;
  }
  DeviceArray<float> OnDevice(const std::vector<float>& values) {
    return *DeviceArray<float>::Of(*stream_, values);
  }
  DeviceArray<int32_t> OnDevice(const std::vector<int32_t>& values) {
    return *DeviceArray<int32_t>::Of(*stream_, values);
  }
  template <class T>
  std::vector<T> Back(const DeviceArray<T>& array) {
    std::vector<T> values(array.size());
    EXPECT_TRUE(stream_->Download(values.data(), array.data(), values.size() * sizeof(T)).ok());
    return values;
  }
  /// What `run` gives, the same under every order of the threads.
  template <class T>
  std::vector<T> InEveryOrder(const std::function<std::vector<T>()>& run) {
    shim::SetOrder(shim::Order::kAscending);
    const std::vector<T> first = run();
    shim::SetOrder(shim::Order::kDescending);
    EXPECT_EQ(run(), first);
    shim::SetOrder(shim::Order::kShuffled, 5);
    EXPECT_EQ(run(), first);
    shim::SetOrder(shim::Order::kAscending);
    return first;
  }

  std::unique_ptr<Stream> stream_ = *Stream::Open(0);
  Random random_{11};
};

TEST_F(CudaKernelsTest, Norms_EqualTheFormulas) {
  for (const int width : {64, 96, 576}) {
    constexpr int kRows = 5;
    const auto x = Random1(static_cast<size_t>(kRows * width), 3);
    const auto weight = Random1(static_cast<size_t>(width));
    const auto bias = Random1(static_cast<size_t>(width));
    const auto dx = OnDevice(x);
    const auto dw = OnDevice(weight);
    const auto db = OnDevice(bias);
    for (const bool layer : {false, true}) {
      const auto y = InEveryOrder<uint16_t>([&] {
        const auto out = *DeviceArray<uint16_t>::Make(*stream_, x.size());
        const NormArguments a{dx.data(), dw.data(), layer ? db.data() : nullptr, 1e-5F, kRows,
                              width,     out.data()};
        layer ? LayerNorm(*stream_, a) : RmsNorm(*stream_, a);
        return Back(out);
      });
      for (int r = 0; r < kRows; ++r) {
        const float* row = x.data() + r * width;
        double mean = 0;
        for (int i = 0; i < width && layer; ++i) mean += row[i] / static_cast<double>(width);
        double square = 0;
        for (int i = 0; i < width; ++i) square += (row[i] - mean) * (row[i] - mean) / width;
        for (int i = 0; i < width; ++i) {
          const auto at = static_cast<size_t>(i);
          const double expected =
              (row[i] - mean) / std::sqrt(square + 1e-5) * weight[at] + (layer ? bias[at] : 0);
          EXPECT_NEAR(Bf16ToFloat(y[static_cast<size_t>(r * width) + at]), expected,
                      std::fabs(expected) / 200 + 1e-3);
        }
      }
    }
  }
}

TEST_F(CudaKernelsTest, RowKernels_EqualTheFormulas) {
  constexpr int kRows = 3;
  constexpr int kWidth = 150;  // not of whole blocks
  const auto gate = Random1(kRows * kWidth, 4);
  const auto up = Random1(kRows * kWidth, 4);
  const auto bias = Random1(kWidth);
  const auto dg = OnDevice(gate);
  const auto du = OnDevice(up);
  const auto db = OnDevice(bias);
  const auto swiglu = InEveryOrder<uint16_t>([&] {
    const auto y = *DeviceArray<uint16_t>::Make(*stream_, gate.size());
    Activate(*stream_, {dg.data(), nullptr, du.data(), db.data(), kRows, kWidth, y.data()});
    return Back(y);
  });
  const auto gelu = InEveryOrder<uint16_t>([&] {
    const auto y = *DeviceArray<uint16_t>::Make(*stream_, gate.size());
    Activate(*stream_, {nullptr, nullptr, du.data(), db.data(), kRows, kWidth, y.data()});
    return Back(y);
  });
  for (size_t i = 0; i < gate.size(); ++i) {
    const double u = up[i] + bias[i % kWidth];
    const double silu = gate[i] / (1 + std::exp(-static_cast<double>(gate[i]))) * u;
    EXPECT_NEAR(Bf16ToFloat(swiglu[i]), silu, std::fabs(silu) / 200 + 1e-3);
    const double g = 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
    EXPECT_NEAR(Bf16ToFloat(gelu[i]), g, std::fabs(g) / 200 + 1e-3);
  }
  const auto wanted = OnDevice(std::vector<int32_t>{2, 0});
  const auto gathered = InEveryOrder<float>([&] {
    const auto y = *DeviceArray<float>::Make(*stream_, 2 * kWidth);
    GatherRows(*stream_, du.data(), wanted.data(), 2, kWidth, y.data());
    AddBias(*stream_, y.data(), db.data(), 2, kWidth);
    return Back(y);
  });
  for (size_t i = 0; i < kWidth; ++i) {
    EXPECT_EQ(gathered[i], up[2 * kWidth + i] + bias[i]);
    EXPECT_EQ(gathered[kWidth + i], up[i] + bias[i]);
  }
}

struct AttentionCase {
  int heads;
  int kv_heads;
  int head_dim;
  int block_size;
  int window;
  bool adjacent;
  bool norms;
};

// Sequences of several lengths through scattered blocks: keys and values are written by FinishHeads chunk by
// chunk, and every row of the last chunk is compared.
class CudaAttentionTest : public CudaKernelsTest, public testing::WithParamInterface<AttentionCase> {
 protected:
  static constexpr int kBlocks = 512;  // not a multiple of 5: each is another
  static constexpr int kPositions = 1200;
  struct Sequence {
    int length;
    int chunk;  // rows of the last step
    std::vector<int32_t> table;
    std::vector<float> q, k, v;  // raw, per position
  };

  void SetUp() override {
    const AttentionCase& c = GetParam();
    kv_ = {nullptr, kBlocks, c.block_size, c.kv_heads, c.head_dim};
    pool_ = *DeviceArray<uint16_t>::Make(*stream_, static_cast<size_t>(2 * kv_.layer_elements()));
    kv_.data = pool_.data();
    rope_.GrowTo(kPositions);
    rope_rows_ = OnDevice(std::vector<float>(rope_.row(0), rope_.row(0) + kPositions * c.head_dim));
    q_norm_ = Random1(static_cast<size_t>(c.head_dim));
    k_norm_ = Random1(static_cast<size_t>(c.head_dim));
    k_bias_ = Random1(static_cast<size_t>(c.kv_heads * c.head_dim));
    dq_norm_ = OnDevice(q_norm_);
    dk_norm_ = OnDevice(k_norm_);
    dk_bias_ = OnDevice(k_bias_);
  }

  Sequence Make(int length, int chunk) {
    const AttentionCase& c = GetParam();
    Sequence s{length, chunk, {}, {}, {}, {}};
    for (int b = 0; b * c.block_size < length; ++b) s.table.push_back((next_block_ += 5) % kBlocks);
    s.q = Random1(static_cast<size_t>(length * c.heads * c.head_dim));
    s.k = Random1(static_cast<size_t>(length * c.kv_heads * c.head_dim));
    s.v = Random1(static_cast<size_t>(length * c.kv_heads * c.head_dim));
    return s;
  }

  // The last chunk of each sequence as one step, and what attention gives; or all before it, which only
  // leaves its keys and values.
  std::vector<uint16_t> Step(const std::vector<Sequence>& sequences, bool last) {
    const AttentionCase& c = GetParam();
    std::vector<int32_t> position, block, slot, table, tables;
    std::vector<float> q, k, v;
    for (const Sequence& s : sequences) {
      const int begin = last ? s.length - s.chunk : 0;
      const int end = last ? s.length : s.length - s.chunk;
      for (int p = begin; p < end; ++p) {
        position.push_back(p);
        block.push_back(s.table[static_cast<size_t>(p / c.block_size)]);
        slot.push_back(p % c.block_size);
        table.push_back(static_cast<int32_t>(tables.size()));
      }
      const auto append = [&](const std::vector<float>& from, int width, std::vector<float>& to) {
        to.insert(to.end(), from.begin() + begin * width, from.begin() + end * width);
      };
      append(s.q, c.heads * c.head_dim, q);
      append(s.k, c.kv_heads * c.head_dim, k);
      append(s.v, c.kv_heads * c.head_dim, v);
      tables.insert(tables.end(), s.table.begin(), s.table.end());
    }
    const auto dp = OnDevice(position);
    const auto dblock = OnDevice(block);
    const auto dslot = OnDevice(slot);
    const auto dtable = OnDevice(table);
    const auto dtables = OnDevice(tables);
    const auto dq = OnDevice(q);
    const auto dk = OnDevice(k);
    const auto dv = OnDevice(v);
    const StepRows rows{dp.data(),     dblock.data(),  dslot.data(),
                        dtable.data(), dtables.data(), static_cast<int>(position.size())};
    FinishHeads(*stream_, kv_, 1, rows,
                {dq.data(), dk.data(), dv.data(), nullptr, dk_bias_.data(), nullptr,
                 c.norms ? dq_norm_.data() : nullptr, c.norms ? dk_norm_.data() : nullptr, 1e-5F,
                 rope_rows_.data(), c.adjacent, c.heads});
    if (!last) return {};
    const auto out = *DeviceArray<uint16_t>::Make(*stream_, q.size());
    int longest = 0;
    for (const int32_t p : position) longest = std::max(longest, p + 1);
    const int spans = SpansOf(longest);
    const auto states = *DeviceArray<float>::Make(
        *stream_, q.size() / static_cast<size_t>(c.head_dim) * static_cast<size_t>(spans) *
                      static_cast<size_t>(SpanStateFloats(c.head_dim)));
    PagedAttention(*stream_, kv_, 1, rows,
                   {dq.data(), c.heads, 1.0F / std::sqrt(static_cast<float>(c.head_dim)), c.window,
                    out.data(), spans, states.data()});
    return Back(out);
  }

  // A head as FinishHeads should make it.
  std::vector<double> Finished(const float* x, const float* bias, const std::vector<float>* norm,
                               int p) const {
    const AttentionCase& c = GetParam();
    std::vector<float> head(x, x + c.head_dim);
    for (int d = 0; d < c.head_dim && bias != nullptr; ++d) head[static_cast<size_t>(d)] += bias[d];
    if (norm != nullptr) {
      double square = 0;
      for (const float value : head) square += value * value / static_cast<double>(c.head_dim);
      for (size_t d = 0; d < head.size(); ++d)
        head[d] = static_cast<float>(head[d] / std::sqrt(square + 1e-5) * (*norm)[d]);
    }
    RopePlain(c.adjacent ? RopePairs::kAdjacent : RopePairs::kHalves, rope_.row(p), c.head_dim, 1,
              head.data());
    return {head.begin(), head.end()};
  }

  // Of all dimensions of one query head at one position.
  std::vector<double> Expected(const Sequence& s, int p, int head) const {
    const AttentionCase& c = GetParam();
    const int kv_head = head / (c.heads / c.kv_heads);
    const auto q =
        Finished(s.q.data() + (p * c.heads + head) * c.head_dim, nullptr, c.norms ? &q_norm_ : nullptr, p);
    std::vector<double> sum(static_cast<size_t>(c.head_dim));
    double total = 0;
    for (int j = c.window > 0 ? std::max(0, p - c.window + 1) : 0; j <= p; ++j) {
      const int64_t at = (j * c.kv_heads + kv_head) * c.head_dim;
      const auto k =
          Finished(s.k.data() + at, k_bias_.data() + kv_head * c.head_dim, c.norms ? &k_norm_ : nullptr, j);
      double dot = 0;
      for (size_t d = 0; d < q.size(); ++d) dot += q[d] * Bf16ToFloat(FloatToBf16(static_cast<float>(k[d])));
      const double weight = std::exp(dot / std::sqrt(c.head_dim));
      total += weight;
      for (size_t d = 0; d < q.size(); ++d)
        sum[d] += weight * Bf16ToFloat(FloatToBf16(s.v[static_cast<size_t>(at) + d]));
    }
    for (double& value : sum) value /= total;
    return sum;
  }

  // Of every row of the sequences' last chunks, computed together.
  void ExpectTheDoubleSoftmax(const std::vector<Sequence>& sequences) {
    const auto out = InEveryOrder<uint16_t>([&] {
      Step(sequences, /*last=*/false);
      return Step(sequences, /*last=*/true);
    });
    size_t at = 0;
    for (const Sequence& s : sequences) {
      for (int p = s.length - s.chunk; p < s.length; ++p) {
        for (int head = 0; head < GetParam().heads; ++head) {
          for (const double expected : Expected(s, p, head))
            ASSERT_NEAR(Bf16ToFloat(out[at++]), expected, 6e-3) << "length " << s.length << " head " << head;
        }
      }
    }
  }

  PagedKv kv_{};
  DeviceArray<uint16_t> pool_;
  RopeTable rope_{RopeFrequencies(GetParam().head_dim, 10000)};
  DeviceArray<float> rope_rows_;
  std::vector<float> q_norm_, k_norm_, k_bias_;
  DeviceArray<float> dq_norm_, dk_norm_, dk_bias_;
  int next_block_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Shapes, CudaAttentionTest,
                         testing::Values(AttentionCase{9, 3, 64, 16, 0, true, false},
                                         AttentionCase{4, 4, 80, 5, 0, false, false},
                                         AttentionCase{8, 1, 96, 16, 9, false, true},
                                         AttentionCase{4, 2, 128, 7, 20, true, false},
                                         AttentionCase{10, 1, 64, 16, 0, true, false}));

TEST_P(CudaAttentionTest, ChunksAndDecodesTogether_EqualTheDoubleSoftmax) {
  ExpectTheDoubleSoftmax({Make(37, 1), Make(1, 1), Make(22, 6), Make(50, 3)});
}

// Longer than a span: states are merged, also where a window leaves spans without a position.
TEST_P(CudaAttentionTest, LongContext_SpansAreMerged) {
  ExpectTheDoubleSoftmax({Make(kSpanPositions + 40, 1), Make(2 * kSpanPositions + 3, 2), Make(30, 1)});
}

}  // namespace
}  // namespace kvring::kernels::cuda
