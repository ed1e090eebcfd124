// Matmul of every weight format and instruction set against a double sum over the dequantised operands, and
// its batch invariance: a row's bits do not depend on its neighbours.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/kernels/random_floats.h"

namespace kvring::kernels {
namespace {

// A matrix with what it really holds.
struct Weights {
  PackedMatrix packed;
  std::vector<float> values;  // rows x cols, as the format represents them
};

Weights MakeWeights(WeightFormat format, PackedMatrix::Shape shape, Random& random) {
  Weights w;
  w.values = RandomFloats(random, static_cast<size_t>(shape.rows * shape.cols));
  const auto at = [&](int64_t row, int64_t col) -> float& {
    return w.values[static_cast<size_t>(row * shape.cols + col)];
  };
  const auto floats = [&](int64_t row, std::span<float> out) {
    for (int64_t k = 0; k < shape.cols; ++k) out[static_cast<size_t>(k)] = at(row, k);
  };
  switch (format) {
    case WeightFormat::kF32:
      w.packed = PackedMatrix::PackF32(shape, floats);
      break;
    case WeightFormat::kBf16:
      for (float& value : w.values) value = Bf16ToFloat(FloatToBf16(value));
      w.packed = PackedMatrix::PackBf16(shape, floats);
      break;
    case WeightFormat::kBf16Rows:
      ADD_FAILURE() << "for devices";
      break;
    case WeightFormat::kU4:
      w.packed = PackedMatrix::PackU4(shape, [&](int64_t row, std::span<U4Block> blocks) {
        for (size_t b = 0; b < blocks.size(); ++b) {
          blocks[b].d = FloatToF16(static_cast<float>(0.01 + random.Uniform()));
          blocks[b].m = FloatToF16(static_cast<float>(random.Uniform() * -8));
          for (size_t k = 0; k < 32; ++k) {
            blocks[b].q[k] = static_cast<uint8_t>(random.Below(16));
            at(row, static_cast<int64_t>(b * 32 + k)) =
                F16ToFloat(blocks[b].d) * blocks[b].q[k] + F16ToFloat(blocks[b].m);
          }
        }
      });
      break;
    case WeightFormat::kU8:
      w.packed = PackedMatrix::PackU8(shape, [&](int64_t row, std::span<U8Block> blocks) {
        for (size_t b = 0; b < blocks.size(); ++b) {
          blocks[b].d = FloatToF16(static_cast<float>(0.01 + random.Uniform()));
          for (size_t k = 0; k < 32; ++k) {
            blocks[b].q[k] = static_cast<int8_t>(random.Below(256));
            at(row, static_cast<int64_t>(b * 32 + k)) = F16ToFloat(blocks[b].d) * blocks[b].q[k];
          }
        }
      });
      break;
  }
  return w;
}

// What the format makes of an activation.
float Represented(WeightFormat format, Activations& x, int64_t row, int64_t k) {
  if (format == WeightFormat::kF32) return x.row(row)[k];
  if (format == WeightFormat::kBf16) return Bf16ToFloat(FloatToBf16(x.row(row)[k]));
  const QuantRow quant = x.quant_row(row);
  return quant.scale[k / 32] * static_cast<float>(quant.q[k]);
}

void Fill(Activations& x, int64_t rows, int64_t cols, Isa isa, Random& random) {
  x.Resize(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    const std::vector<float> values = RandomFloats(random, static_cast<size_t>(cols));
    std::copy(values.begin(), values.end(), x.row(r));
    if (cols % 32 == 0) x.Quantize(isa, r);
  }
}

struct Case {
  Isa isa;
  WeightFormat format;
};
std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const Isa isa : SupportedIsas()) {
    for (const WeightFormat format :
         {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kU4, WeightFormat::kU8}) {
      cases.push_back({isa, format});
    }
  }
  return cases;
}
class MatMulTest : public testing::TestWithParam<Case> {};
std::string CaseName(const testing::TestParamInfo<Case>& info) {
  constexpr const char* kFormats[] = {"F32", "Bf16", "U4", "U8"};
  return std::string(NameOf(info.param.isa)) + kFormats[static_cast<int>(info.param.format)];
}
INSTANTIATE_TEST_SUITE_P(All, MatMulTest, testing::ValuesIn(AllCases()), CaseName);

TEST_P(MatMulTest, AnyShape_EqualsTheDoubleSum) {
  Random random(11);
  ThreadPool pool(2);
  const auto [isa, format] = GetParam();
  for (const PackedMatrix::Shape shape :
       {PackedMatrix::Shape{1, 32}, {16, 64}, {33, 96}, {200, 576}, {49, 1536}}) {
    const Weights w = MakeWeights(format, shape, random);
    for (const int64_t rows : {1, 2, 5, 7, 12, 13, 200}) {
      if (rows == 200 && shape.cols > 96) continue;
      Activations x;
      Fill(x, rows, shape.cols, isa, random);
      const int64_t stride = shape.rows + 3;
      std::vector<float> y(static_cast<size_t>(rows * stride), 7.0F);
      const MatMulOutput output{&w.packed, y.data(), stride, Store::kAdd};
      MatMul(isa, pool, x, {&output, 1});
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t o = 0; o < stride; ++o) {
          double expected = 7;
          double magnitude = 1;
          for (int64_t k = 0; o < shape.rows && k < shape.cols; ++k) {
            const double term = static_cast<double>(w.values[static_cast<size_t>(o * shape.cols + k)]) *
                                Represented(format, x, r, k);
            expected += term;
            magnitude += std::fabs(term);
          }
          // The U4 sum is split in two parts that may cancel: their magnitude is up to 16 times that of the
          // terms.
          const double tolerance = magnitude * (format == WeightFormat::kU4 ? 1e-5 : 1e-6);
          ASSERT_NEAR(y[static_cast<size_t>(r * stride + o)], expected, tolerance)
              << shape.rows << " " << rows << " " << o;
        }
      }
    }
  }
}

TEST_P(MatMulTest, RowAlone_SameBitsAsAmongOthers) {
  Random random(12);
  ThreadPool pool(2);
  const auto [isa, format] = GetParam();
  const Weights w = MakeWeights(format, {80, 192}, random);
  Activations all;
  Fill(all, 23, 192, isa, random);
  std::vector<float> together(23 * 80);
  const MatMulOutput output{&w.packed, together.data(), 80, Store::kSet};
  MatMul(isa, pool, all, {&output, 1});
  for (int64_t r = 0; r < 23; ++r) {
    Activations one;
    one.Resize(1, 192);
    std::copy_n(all.row(r), 192, one.row(0));
    one.Quantize(isa, 0);
    std::vector<float> alone(80);
    const MatMulOutput single{&w.packed, alone.data(), 80, Store::kSet};
    MatMul(isa, pool, one, {&single, 1});
    for (size_t o = 0; o < 80; ++o)
      ASSERT_EQ(alone[o], together[static_cast<size_t>(r) * 80 + o]) << r << " " << o;
  }
}

TEST(MatMulGroupTest, SeveralOutputs_EachItsOwn) {
  Random random(13);
  ThreadPool pool(2);
  const Weights a = MakeWeights(WeightFormat::kF32, {20, 32}, random);
  const Weights b = MakeWeights(WeightFormat::kU4, {40, 32}, random);
  Activations x;
  Fill(x, 3, 32, BestIsa(), random);
  std::vector<float> grouped_a(60), grouped_b(120), single_a(60), single_b(120);
  const MatMulOutput group[] = {{&a.packed, grouped_a.data(), 20}, {&b.packed, grouped_b.data(), 40}};
  MatMul(BestIsa(), pool, x, group);
  const MatMulOutput first{&a.packed, single_a.data(), 20};
  const MatMulOutput second{&b.packed, single_b.data(), 40};
  MatMul(BestIsa(), pool, x, {&first, 1});
  MatMul(BestIsa(), pool, x, {&second, 1});
  EXPECT_EQ(grouped_a, single_a);
  EXPECT_EQ(grouped_b, single_b);
}

}  // namespace
}  // namespace kvring::kernels
