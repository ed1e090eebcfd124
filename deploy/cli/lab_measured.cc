// kvring lab measured: the KV bytes that a real generation holds, at checkpoints, against the formula. Held
// is what the engine's block table has taken from the executor's pool, so the formula is exact at multiples
// of a block and the table says what the open block costs in between.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/runtime/clock.h"
#include "common/status_macros.h"
#include "deploy/cli/lab_command.h"
#include "replica/engine/engine.h"
#include "replica/kv/kv_size.h"

namespace kvring::cli {
namespace {

constexpr int32_t kPrompt = 16;

struct Checkpoint {
  int64_t tokens;
  int64_t held_bytes;
  int64_t formula_bytes;
};

replica::KvShape ShapeOf(const replica::CpuExecutor& executor, const std::string& dtype) {
  const replica::ModelConfig& config = executor.config();
  replica::KvShape shape{.layers = config.layers,
                         .kv_heads = config.kv_heads,
                         .head_dim = config.head_dim,
                         .window = config.window};
  replica::SetKvType(dtype, shape);
  return shape;
}

// One greedy generation; a checkpoint is taken when the cache has so many tokens.
absl::StatusOr<std::vector<Checkpoint>> Generate(replica::CpuExecutor& executor,
                                                 const replica::KvShape& shape,
                                                 const std::vector<int32_t>& lengths) {
  replica::Engine engine(executor, {.prefix_caching = false});
  replica::EngineRequest request;
  request.id = RequestId{1};
  for (TokenId token = 0; token < kPrompt; ++token) request.prompt.push_back(100 + token);
  request.max_tokens = lengths.back() - kPrompt + 2;  // it still runs at the last checkpoint
  request.ignore_eos = true;
  request.sampling.temperature = 0;
  std::vector<Checkpoint> checkpoints;
  KVRING_RETURN_IF_ERROR(engine.Add(std::move(request), Now()));
  int64_t cached = 0;
  for (auto next = lengths.begin(); next != lengths.end() && engine.HasWork();) {
    const replica::StepReport step = engine.Step(Now());
    for (const replica::EngineEvent& event : engine.TakeEvents()) {
      if (const auto* failed = std::get_if<replica::EngineEvent::Failed>(&event.what)) return failed->status;
    }
    cached += step.prefill_tokens + step.decode_tokens;
    if (cached != *next) continue;
    const int64_t held = engine.Load().kv_used_tokens * executor.limits().kv_bytes_per_token;
    checkpoints.push_back({cached, held, KvBytes(shape, cached, 1)});
    ++next;
  }
  return checkpoints;
}

boost::json::object Json(const LabModel& model, const LabOptions& options, const replica::KvShape& shape,
                         const std::vector<Checkpoint>& checkpoints) {
  boost::json::array rows;
  bool exact = true;
  for (const Checkpoint& c : checkpoints) {
    rows.push_back(
        {{"tokens", c.tokens},
         {"held_bytes", c.held_bytes},
         {"formula_bytes", c.formula_bytes},
         {"held_bytes_per_token", static_cast<double>(c.held_bytes) / static_cast<double>(c.tokens)}});
    exact = exact && c.held_bytes == c.formula_bytes;
  }
  return {{"model", model.name},
          {"dtype", options.model.dtype},
          {"window", shape.window},
          {"block_tokens", model.executor->limits().block_size},
          {"kv_bytes_per_token", KvBytesPerToken(shape)},
          {"exact", exact},
          {"checkpoints", std::move(rows)}};
}

void Print(const LabModel& model, const replica::KvShape& shape, const std::vector<Checkpoint>& checkpoints) {
  std::printf("%s: 2 x %ld layers x %ld KV heads x %ld head dim x %ld bytes = %.4f MiB per token\n",
              model.name.c_str(), shape.layers, shape.kv_heads, shape.head_dim, shape.element_bytes,
              static_cast<double>(KvBytesPerToken(shape)) / (1 << 20));
  std::printf("%10s %16s %16s %12s\n", "tokens", "held", "formula", "MiB/token");
  for (const Checkpoint& c : checkpoints) {
    std::printf("%10ld %16ld %16ld %12.4f%s\n", c.tokens, c.held_bytes, c.formula_bytes,
                static_cast<double>(c.held_bytes) / static_cast<double>(c.tokens) / (1 << 20),
                c.held_bytes == c.formula_bytes ? "" : "  open block");
  }
}

int Run(LabOptions options) {
  std::sort(options.lengths.begin(), options.lengths.end());
  if (options.lengths.front() < kPrompt) {
    Fail(absl::StrCat("--lengths: the prompt has ", kPrompt, " tokens, ", options.lengths.front(),
                      " is less"));
    return 2;
  }
  options.model.kv_tokens = options.lengths.back() + 32;
  const auto model = LoadLabModel(options.model);
  if (!model.ok()) return Fail(model.status());
  if (options.lengths.back() >= model->executor->limits().context_length) {
    Fail(absl::StrCat("--lengths: ", options.lengths.back(), " is over the model's context of ",
                      model->executor->limits().context_length));
    return 2;
  }
  const replica::KvShape shape = ShapeOf(*model->executor, options.model.dtype);
  const auto generated = Generate(*model->executor, shape, options.lengths);
  if (!generated.ok()) return Fail(generated.status());
  const std::vector<Checkpoint>& checkpoints = *generated;
  if (options.json) {
    std::printf("%s\n", boost::json::serialize(Json(*model, options, shape, checkpoints)).c_str());
  } else {
    Print(*model, shape, checkpoints);
  }
  const auto whole = [&](const Checkpoint& c) {
    return c.tokens % model->executor->limits().block_size == 0;
  };
  const bool differs = std::any_of(checkpoints.begin(), checkpoints.end(), [&](const Checkpoint& c) {
    return shape.window == 0 && whole(c) && c.held_bytes != c.formula_bytes;
  });
  return differs ? 1 : 0;
}

}  // namespace

void AddLabMeasured(CLI::App& lab, Action& action) {
  auto options =
      std::make_shared<LabOptions>();  // shared by the parser and the action, whichever lives longer
  options->lengths = {64, 128, 256, 512};
  CLI::App* command = lab.add_subcommand("measured", "KV bytes that a generation holds, against the formula");
  AddLabOptions(*command, *options);
  command->add_option("--window", options->model.window, "sliding window instead of the model's own, 0: none")
      ->check(CLI::NonNegativeNumber);
  command->footer(
      "Examples:\n  kvring lab measured\n  kvring lab measured --model gpt2-124m --json\n"
      "  kvring lab measured --dtype bf16 --window 128 --lengths 64,128,256,512\n"
      "Exit code 1: what is held differs from the formula at a multiple of a block.");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
