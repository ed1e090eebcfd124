// kernel_roofline: every kernel's rate beside what this machine can do at most, measured in the same run:
// bytes read from memory per second, and multiply-adds of vpdpbusd, vdpbf16ps and vfmadd (one counts as two).
// Shapes are those of SmolLM2-135M; the shortest of many runs, so that other load shows least. Needs AVX-512.
//   kernel_roofline [--threads N] [--repeat N]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <vector>

#include "common/random.h"
#include "common/runtime/clock.h"
#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

#if KVRING_X86
#include <immintrin.h>

namespace kvring::kernels {
namespace {

constexpr Isa kIsa = Isa::kAvx512;
constexpr int64_t kWidth = 576;
constexpr int64_t kHeads = 9;
constexpr int64_t kHeadDim = 64;

int repeat = 200;

template <class Body>
double Shortest(Body body) {
  int64_t best = INT64_MAX;
  for (int i = 0; i < repeat; ++i) {
    const Instant start = Now();
    body();
    best = std::min(best, Now().ns - start.ns);
  }
  return static_cast<double>(best) * 1e-9;
}

struct Peaks {
  double read;  // GB/s
  double int8;  // GOP/s
  double bf16;
  double f32;
};

enum class Dot { kInt8, kBf16, kF32 };

// 16 independent chains of dot products, enough to fill the pipes.
template <Dot kDot>
KVRING_TARGET_AVX512 void DotProducts(int64_t rounds) {
  __m512i chain[16];
  for (int i = 0; i < 16; ++i) chain[i] = _mm512_set1_epi32(i);
  __m512i x = _mm512_set1_epi32(1);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (__m512i& c : chain) {
      if constexpr (kDot == Dot::kInt8) c = _mm512_dpbusd_epi32(c, x, x);
      if constexpr (kDot == Dot::kBf16)
        c = _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(c), (__m512bh)x, (__m512bh)x));
      if constexpr (kDot == Dot::kF32)
        c = _mm512_castps_si512(
            _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(x), _mm512_castsi512_ps(c)));
    }
    asm volatile("" : "+v"(x));
  }
  for (__m512i& c : chain) asm volatile("" : "+v"(c));
}

template <Dot kDot>
double DotPeak(ThreadPool& threads, double operations_per_vector) {
  constexpr int64_t kRounds = 20000;
  const double seconds =
      Shortest([&] { threads.Run(threads.size(), [](int64_t) { DotProducts<kDot>(kRounds); }); });
  return threads.size() * kRounds * 16 * operations_per_vector / seconds * 1e-9;
}

KVRING_TARGET_AVX512 void ReadAll(const std::byte* data, int64_t bytes) {
  __m512i sum[4] = {};
  for (int64_t at = 0; at < bytes; at += 256) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) sum[i] = _mm512_xor_si512(sum[i], _mm512_loadu_si512(data + at + i * 64));
  }
  for (__m512i& s : sum) asm volatile("" : "+v"(s));
}

double ReadPeak(ThreadPool& threads) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  constexpr int64_t kPart = int64_t{1} << 20;
  const std::vector<std::byte> data(kBytes, std::byte{1});
  const double seconds = Shortest(
      [&] { threads.Run(kBytes / kPart, [&](int64_t i) { ReadAll(data.data() + i * kPart, kPart); }); });
  return kBytes / seconds * 1e-9;
}

struct Rate {
  double value;
  double peak;
  const char* unit;
};

void Print(const std::string& kernel, const Rate& rate) {
  std::printf("%-44s %10.1f %-8s %5.0f %%\n", kernel.c_str(), rate.value, rate.unit,
              100 * rate.value / rate.peak);
  std::fflush(stdout);
}

void Fill(Activations& x, int64_t rows, int64_t cols, Random& random) {
  x.Resize(rows, cols);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t k = 0; k < cols; ++k) x.row(r)[k] = static_cast<float>(random.Uniform() - 0.5);
    x.Quantize(kIsa, r);
  }
}

PackedMatrix RandomU4(PackedMatrix::Shape shape, Random& random) {
  return PackedMatrix::PackU4(shape, [&](int64_t, std::span<U4Block> blocks) {
    for (U4Block& block : blocks) {
      block = {FloatToF16(0.01F), FloatToF16(-0.08F), {}};
      for (uint8_t& q : block.q) q = static_cast<uint8_t>(random.Below(16));
    }
  });
}

PackedMatrix RandomU8(PackedMatrix::Shape shape, Random& random) {
  return PackedMatrix::PackU8(shape, [&](int64_t, std::span<U8Block> blocks) {
    for (U8Block& block : blocks) {
      block.d = FloatToF16(0.01F);
      for (int8_t& q : block.q) q = static_cast<int8_t>(static_cast<int>(random.Below(255)) - 127);
    }
  });
}

// One row against weights larger than the caches: bound by memory.
void Gemv(ThreadPool& threads, const char* name, const PackedMatrix& weights, double read) {
  Random random(1);
  Activations x;
  Fill(x, 1, weights.cols(), random);
  std::vector<float> y(static_cast<size_t>(weights.rows()));
  const MatMulOutput output{&weights, y.data(), weights.rows()};
  const double seconds = Shortest([&] { MatMul(kIsa, threads, x, {&output, 1}); });
  Print(name, {static_cast<double>(weights.size_bytes()) / seconds * 1e-9, read, "GB/s"});
}

void Gemm(ThreadPool& threads, int64_t rows, double int8) {
  Random random(2);
  const PackedMatrix weights = RandomU4({1536, kWidth}, random);
  Activations x;
  Fill(x, rows, kWidth, random);
  std::vector<float> y(static_cast<size_t>(rows * weights.rows()));
  const MatMulOutput output{&weights, y.data(), weights.rows()};
  const double seconds = Shortest([&] { MatMul(kIsa, threads, x, {&output, 1}); });
  const double operations = 2.0 * static_cast<double>(rows * kWidth * weights.rows());
  Print("GEMM Q4_1, " + std::to_string(rows) + " rows", {operations / seconds * 1e-9, int8, "GOP/s"});
}

// rows consecutive tokens behind `context` others, bf16 keys and values.
void Attend(ThreadPool& threads, int32_t rows, int32_t context, const Peaks& peaks) {
  Random random(3);
  const int32_t tokens = rows + context;
  const KvShape shape{1, 3, kHeadDim, 16, (tokens + 15) / 16, KvType::kBf16};
  KvPool pool(shape);
  std::vector<BlockId> table;
  for (int32_t b = 0; b < shape.num_blocks; ++b) table.push_back(BlockId{b});
  std::vector<float> row(3 * kHeadDim);
  for (int32_t p = 0; p < tokens; ++p) {
    for (float& value : row) value = static_cast<float>(random.Uniform() - 0.5);
    pool.Write(kIsa, {0, table[static_cast<size_t>(p / 16)], p % 16}, row.data(), row.data());
  }
  std::vector<float> q(static_cast<size_t>(rows * kWidth), 0.1F);
  std::vector<float> out(q.size());
  const AttentionRows step{q.data(), out.data(), rows, context, table};
  Attention attention(kIsa);
  const double seconds = Shortest([&] {
    attention.Run(threads, {&pool, 0, {static_cast<int>(kHeads), 0.125F}}, {&step, 1});
  });
  const std::string name = "attention bf16, " + std::to_string(rows) + " rows on " + std::to_string(context);
  if (rows == 1) {
    Print(name, {static_cast<double>(tokens) * static_cast<double>(shape.token_bytes()) / seconds * 1e-9,
                 peaks.read, "GB/s"});
    return;
  }
  double pairs = 0;
  for (int32_t r = 0; r < rows; ++r) pairs += context + r + 1;
  Print(name, {4 * kHeadDim * kHeads * pairs / seconds * 1e-9, peaks.bf16, "GFLOP/s"});
}

// What streams over one row after the other; bytes are read plus written.
template <class Body>
void Stream(ThreadPool& threads, const char* name, double bytes_per_row, double read, Body body) {
  constexpr int64_t kRows = 512;
  const double seconds = Shortest([&] {
    threads.Run(kRows / 8, [&](int64_t task) {
      for (int64_t r = task * 8; r < task * 8 + 8; ++r) body(r);
    });
  });
  Print(name, {kRows * bytes_per_row / seconds * 1e-9, read, "GB/s"});
}

void Elementwise(ThreadPool& threads, double read) {
  Random random(4);
  Activations x;
  Fill(x, 512, kWidth, random);
  Activations y;
  Fill(y, 512, kWidth, random);
  const std::vector<float> weight(kWidth, 1.0F);
  RopeTable table(RopeFrequencies(kHeadDim, 1e5));
  table.GrowTo(512);
  Stream(threads, "RMS norm, 512 rows", 8.0 * kWidth, read, [&](int64_t r) {
    RmsNorm(kIsa, x.row(r), kWidth, {weight.data(), 1e-5F}, y.row(r));
  });
  Stream(threads, "RoPE, 512 rows", 8.0 * kWidth, read, [&](int64_t r) {
    Rope(kIsa, RopePairs::kAdjacent, table.row(r), kHeadDim, static_cast<int>(kHeads), x.row(r));
  });
  Stream(threads, "int8 quantisation, 512 rows", 5.0 * kWidth, read, [&](int64_t r) { y.Quantize(kIsa, r); });
  Stream(threads, "SwiGLU, 512 rows", 12.0 * kWidth, read,
         [&](int64_t r) { SwiGlu(kIsa, x.row(r), x.row(r), kWidth, y.row(r)); });
}

int Run(int thread_count) {
  if (!IsSupported(kIsa)) {
    std::fprintf(stderr, "kernel_roofline: this CPU has no %s\n", std::string(NameOf(kIsa)).c_str());
    return 1;
  }
  ThreadPool threads(thread_count);
  const Peaks peaks{ReadPeak(threads), DotPeak<Dot::kInt8>(threads, 128), DotPeak<Dot::kBf16>(threads, 64),
                    DotPeak<Dot::kF32>(threads, 32)};
  std::printf("%d threads; limits: read %.1f GB/s, int8 %.0f GOP/s, bf16 %.0f GFLOP/s, f32 %.0f GFLOP/s\n",
              thread_count, peaks.read, peaks.int8, peaks.bf16, peaks.f32);
  Random random(5);
  Gemv(threads, "GEMV Q4_1, 100 MB", RandomU4({49152, 3264}, random), peaks.read);
  Gemv(threads, "GEMV Q8_0, 100 MB", RandomU8({49152, 1920}, random), peaks.read);
  for (const int64_t rows : {16, 64, 512}) Gemm(threads, rows, peaks.int8);
  Attend(threads, 1, 8191, peaks);
  Attend(threads, 64, 960, peaks);
  Attend(threads, 512, 0, peaks);
  Elementwise(threads, peaks.read);
  return 0;
}

}  // namespace
}  // namespace kvring::kernels
#endif

int main(int argc, char** argv) {
  int threads = 2;
  CLI::App app("each kernel beside the machine's limits");
  app.add_option("--threads", threads)->check(CLI::Range(1, 256));
#if KVRING_X86
  app.add_option("--repeat", kvring::kernels::repeat, "the shortest of so many runs")
      ->check(CLI::Range(1, 100000));
  CLI11_PARSE(app, argc, argv);
  return kvring::kernels::Run(threads);
#else
  CLI11_PARSE(app, argc, argv);
  std::fprintf(stderr, "kernel_roofline: needs an x86 CPU with AVX-512\n");
  return 1;
#endif
}
