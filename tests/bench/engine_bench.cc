// engine_bench: what the CPU executor does per second on the bundled model, as one table: prefill at several
// prompt lengths, decode of one sequence at several contexts, decode of 8 and 16 sequences at once. No
// assertion on time.
//   engine_bench [--model FILE] [--threads N] [--precision fast|fp32] [--isa plain|avx2|avx512] [--repeat N]
//   [--only ROW]
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/random.h"
#include "common/runtime/clock.h"
#include "replica/kv/kv_size.h"
#include "replica/model/cpu_executor.h"

namespace kvring::replica {
namespace {

struct Flags {
  std::string model;
  int threads = 2;
  std::string kv_type;
  std::string precision = "fast";
  std::string isa;
  int repeat = 5;
  std::string only;
};

double SecondsNow() { return static_cast<double>(Now().ns) * 1e-9; }

class Bench {
 public:
  Bench(CpuExecutor& executor, int repeat) : executor_(executor), repeat_(repeat) {
    for (int32_t i = 0; i < 4096; ++i) tokens_.push_back(static_cast<TokenId>(random_.Below(40000) + 100));
  }

  void Prefill(int32_t length) {
    std::vector<double> seconds;
    for (int i = 0; i < repeat_; ++i) seconds.push_back(TimePrefill(length));
    Print({"prefill", length, 1, length}, seconds);
  }

  void Decode(int32_t context, int32_t sequences) {
    for (int32_t s = 0; s < sequences; ++s) Step({Part(s, 0, context)});
    std::vector<double> seconds;
    for (int i = 0; i < repeat_ * 16; ++i) {
      std::vector<SequenceStep> parts;
      for (int32_t s = 0; s < sequences; ++s) parts.push_back(Part(s, context + i, 1));
      seconds.push_back(Step(parts));
    }
    Print({"decode", context, sequences, sequences}, seconds);
  }

 private:
  struct Cell {
    const char* what;
    int32_t context;
    int32_t sequences;
    int32_t tokens;  // per step
  };

  static void Print(const Cell& cell, std::vector<double> seconds) {
    std::sort(seconds.begin(), seconds.end());
    std::printf("%-8s %8d %10d %12.1f %12.1f\n", cell.what, cell.context, cell.sequences,
                cell.tokens / seconds[seconds.size() / 2], cell.tokens / seconds.front());
    std::fflush(stdout);
  }

  double TimePrefill(int32_t length) { return Step({Part(0, 0, length)}); }

  SequenceStep Part(int32_t sequence, int32_t first, int32_t count) {
    while (static_cast<int32_t>(tables_.size()) <= sequence) tables_.emplace_back();
    std::vector<BlockId>& table = tables_[static_cast<size_t>(sequence)];
    while (static_cast<int32_t>(table.size()) * executor_.limits().block_size < first + count) {
      table.push_back(BlockId{next_block_++ % executor_.limits().num_blocks});
    }
    return {SequenceId{static_cast<uint64_t>(sequence)},
            std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(count)), first, table,
            count - 1};
  }

  double Step(const std::vector<SequenceStep>& parts) {
    Batch batch;
    batch.steps = parts;
    StepOutput output;
    const double start = SecondsNow();
    if (!executor_.Execute(batch, output).ok()) std::abort();
    return SecondsNow() - start;
  }

  CpuExecutor& executor_;
  int repeat_;
  Random random_{1};
  std::vector<TokenId> tokens_;
  std::vector<std::vector<BlockId>> tables_;
  int32_t next_block_ = 0;
};

int Run(const Flags& flags) {
  CpuOptions options;
  options.threads = flags.threads;
  options.kv_tokens = 32768;
  if (!flags.kv_type.empty()) options.kv_type = ParseKvType(flags.kv_type).value();
  options.precision = flags.precision == "fp32" ? Precision::kFp32 : Precision::kFast;
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    if (kernels::NameOf(isa) == flags.isa) options.isa = isa;
  }
  const double start = SecondsNow();
  auto executor = CpuExecutor::Load(flags.model, options);
  if (!executor.ok()) {
    std::fprintf(stderr, "%s\n", executor.status().ToString().c_str());
    return 1;
  }
  std::printf("%s, %d threads, %s, loaded in %.2f s\n", flags.precision.c_str(), flags.threads,
              std::string(kernels::NameOf(options.isa)).c_str(), SecondsNow() - start);
  std::printf("%-8s %8s %10s %12s %12s\n", "what", "context", "sequences", "tokens/s", "best step");
  struct Cell {
    std::string name;
    int32_t context;
    int32_t sequences;  // 0: prefill
  };
  for (const Cell& cell : {Cell{"p64", 64, 0},
                           {"p512", 512, 0},
                           {"p2048", 2048, 0},
                           {"d64", 64, 1},
                           {"d512", 512, 1},
                           {"d2048", 2048, 1},
                           {"b8", 128, 8},
                           {"b16", 128, 16}}) {
    if (!flags.only.empty() && flags.only != cell.name) continue;
    Bench bench(**executor, flags.repeat);
    if (cell.sequences == 0) {
      bench.Prefill(cell.context);
    } else {
      bench.Decode(cell.context, cell.sequences);
    }
  }
  return 0;
}

}  // namespace
}  // namespace kvring::replica

int main(int argc, char** argv) {
  kvring::replica::Flags flags;
  const char* home = std::getenv("HOME");
  flags.model = std::string(home != nullptr ? home : ".") + "/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf";
  CLI::App app("tokens per second of the CPU executor");
  app.add_option("--model", flags.model, "GGUF file")->envname("KVRING_MODEL");
  app.add_option("--threads", flags.threads, "threads of the pool")->check(CLI::Range(1, 256));
  app.add_option("--precision", flags.precision)->check(CLI::IsMember({"fast", "fp32"}));
  app.add_option("--kv-type", flags.kv_type, "default: that of the precision")
      ->check(CLI::IsMember(kvring::replica::KvTypeNames()));
  app.add_option("--isa", flags.isa, "default: the best of this CPU")
      ->check(CLI::IsMember({"plain", "avx2", "avx512"}));
  app.add_option("--repeat", flags.repeat)->check(CLI::Range(1, 1000));
  app.add_option("--only", flags.only, "one row: p64, p512, p2048, d64, d512, d2048, b8 or b16");
  CLI11_PARSE(app, argc, argv);
  return kvring::replica::Run(flags);
}
