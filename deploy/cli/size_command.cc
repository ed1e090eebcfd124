// kvring size: KV bytes, cost per token, how many conversations fit: from flags, a config.json or a GGUF
// file.
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"
#include "deploy/cli/command.h"
#include "deploy/cli/size_models.h"
#include "deploy/cli/size_plot.h"
#include "replica/kv/kv_size.h"
#include "replica/model/gguf.h"
#include "replica/model/model_config.h"

namespace kvring::cli {
namespace {

using replica::KvShape;

struct Options {
  std::string file;
  KvShape shape{.layers = 0, .kv_heads = 0, .head_dim = 0, .element_bytes = 2, .window = -1};
  std::string kv_type;
  int64_t seq = 0;
  int64_t batch = 1;
  std::string memory;
  std::string weights = "0";
  std::string svg;
  bool models = false;
  bool json = false;
};

// A card and what its weights leave; 0: no card was named.
struct Card {
  int64_t memory = 0;
  int64_t weights = 0;

  int64_t room() const { return std::max<int64_t>(memory - weights, 0); }
};

struct Model {
  KvShape shape;
  int64_t context = 0;
};

absl::StatusOr<int64_t> Field(const boost::json::object& config, const std::string& file, const char* name,
                              int64_t fallback) {
  const auto* value = config.if_contains(name);
  if (value == nullptr || value->is_null()) {
    if (fallback >= 0) return fallback;
    return absl::InvalidArgumentError(absl::StrCat(file, ": field ", name, " is missing"));
  }
  if (!value->is_int64() || value->get_int64() < 0)
    return absl::InvalidArgumentError(absl::StrCat(file, ": field ", name, " is no whole number"));
  return value->get_int64();
}

// A Hugging Face config.json; GPT-2 names its fields differently.
absl::StatusOr<Model> FromConfigJson(const std::string& file) {
  KVRING_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, size_t{4} << 20));
  boost::system::error_code error;
  const auto parsed = boost::json::parse(text, error);
  if (error || !parsed.is_object())
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a JSON object"));
  const boost::json::object& config = parsed.get_object();
  const bool gpt2 = config.contains("n_layer");
  Model model;
  KVRING_ASSIGN_OR_RETURN(model.shape.layers,
                          Field(config, file, gpt2 ? "n_layer" : "num_hidden_layers", -1));
  KVRING_ASSIGN_OR_RETURN(const int64_t heads,
                          Field(config, file, gpt2 ? "n_head" : "num_attention_heads", -1));
  KVRING_ASSIGN_OR_RETURN(const int64_t width, Field(config, file, gpt2 ? "n_embd" : "hidden_size", -1));
  if (heads == 0) return absl::InvalidArgumentError(absl::StrCat(file, ": field num_attention_heads is 0"));
  KVRING_ASSIGN_OR_RETURN(model.shape.kv_heads, Field(config, file, "num_key_value_heads", heads));
  KVRING_ASSIGN_OR_RETURN(model.shape.head_dim, Field(config, file, "head_dim", width / heads));
  // Qwen2 names a window that it does not use.
  const auto* used = config.if_contains("use_sliding_window");
  if (used == nullptr || !used->is_bool() || used->get_bool()) {
    KVRING_ASSIGN_OR_RETURN(model.shape.window, Field(config, file, "sliding_window", 0));
  }
  KVRING_ASSIGN_OR_RETURN(model.context,
                          Field(config, file, gpt2 ? "n_positions" : "max_position_embeddings", -1));
  return model;
}

absl::StatusOr<Model> FromGguf(const std::string& file) {
  KVRING_ASSIGN_OR_RETURN(const replica::GgufFile gguf, replica::GgufFile::Open(file));
  KVRING_ASSIGN_OR_RETURN(const replica::ModelConfig config, replica::ReadModelConfig(gguf));
  Model model;
  model.shape = {.layers = config.layers,
                 .kv_heads = config.kv_heads,
                 .head_dim = config.head_dim,
                 .window = config.window};
  model.context = config.context_length;
  return model;
}

// The file's shape, with what the flags say instead.
absl::StatusOr<Model> Resolve(const Options& options) {
  Model model;
  if (!options.file.empty()) {
    std::error_code error;
    const bool folder = std::filesystem::is_directory(options.file, error);
    const std::string file = folder ? options.file + "/config.json" : options.file;
    KVRING_ASSIGN_OR_RETURN(model, file.ends_with(".json") ? FromConfigJson(file) : FromGguf(file));
  }
  if (options.shape.layers > 0) model.shape.layers = options.shape.layers;
  if (options.shape.kv_heads > 0) model.shape.kv_heads = options.shape.kv_heads;
  if (options.shape.head_dim > 0) model.shape.head_dim = options.shape.head_dim;
  if (options.shape.window >= 0) model.shape.window = options.shape.window;
  model.shape.element_bytes = options.shape.element_bytes;
  if (!options.kv_type.empty()) SetKvType(options.kv_type, model.shape);
  if (options.seq > 0) model.context = options.seq;
  const KvShape& shape = model.shape;
  for (const auto& [name, value] : {std::pair{"--layers", shape.layers},
                                    {"--kv-heads", shape.kv_heads},
                                    {"--head-dim", shape.head_dim},
                                    {"--seq", model.context}}) {
    if (value <= 0)
      return absl::InvalidArgumentError(absl::StrCat(name, " is needed (or a model file that says it)"));
  }
  // The product is an exact integer or it is refused.
  const double row_bytes = 1.0 * shape.head_dim * shape.element_bytes + shape.scale_bytes;
  const double bytes = 2.0 * shape.layers * shape.kv_heads * row_bytes * model.context * options.batch;
  if (bytes > 0x1p62) return absl::InvalidArgumentError("the size does not fit 64 bits");
  return model;
}

absl::StatusOr<Card> CardOf(const Options& options) {
  Card card;
  if (!options.memory.empty()) KVRING_RETURN_IF_ERROR(ParseBytes(options.memory, card.memory));
  KVRING_RETURN_IF_ERROR(ParseBytes(options.weights, card.weights));
  return card;
}

void PrintJson(const Model& model, const Options& options, const Card& card) {
  const KvShape& shape = model.shape;
  boost::json::object out = {{"kv_bytes", KvBytes(shape, model.context, options.batch)},
                             {"kv_bytes_per_token", KvBytesPerToken(shape)},
                             {"tokens", model.context},
                             {"batch", options.batch},
                             {"layers", shape.layers},
                             {"kv_heads", shape.kv_heads},
                             {"head_dim", shape.head_dim},
                             {"dtype_bytes", shape.element_bytes},
                             {"scale_bytes", shape.scale_bytes},
                             {"window", shape.window}};
  if (!options.memory.empty()) out["conversations"] = card.room() / KvBytes(shape, model.context, 1);
  std::printf("%s\n", boost::json::serialize(out).c_str());
}

void PrintText(const Model& model, const Options& options, const Card& card) {
  const KvShape& shape = model.shape;
  const std::string scale =
      shape.scale_bytes == 0 ? "" : absl::StrCat(" + ", shape.scale_bytes, " of a scale");
  std::printf("2 x %ld layers x %ld KV heads x (%ld head dim x %ld bytes%s) = %s per token\n", shape.layers,
              shape.kv_heads, shape.head_dim, shape.element_bytes, scale.c_str(),
              FormatBytes(KvBytesPerToken(shape)).c_str());
  if (shape.window > 0) std::printf("sliding window: at most %ld tokens are kept\n", shape.window);
  const int64_t total = KvBytes(shape, model.context, options.batch);
  std::printf("%ld tokens x batch %ld: %s (%ld bytes)\n", model.context, options.batch,
              FormatBytes(total).c_str(), total);
  if (options.memory.empty()) return;
  std::printf("%s for KV (%s less %s of weights): %ld conversations of %ld tokens\n",
              FormatBytes(card.room()).c_str(), FormatBytes(card.memory).c_str(),
              FormatBytes(card.weights).c_str(), card.room() / KvBytes(shape, model.context, 1),
              model.context);
}

int WritePlot(const Model& model, const Options& options, const Card& card) {
  const absl::Status written =
      WriteFile(options.svg, SizePlot(model.shape, model.context, options.batch, card.room()));
  return written.ok() ? 0 : Fail(absl::StrCat("--svg: ", options.svg, " cannot be written"));
}

int Run(const Options& options) {
  const auto card = CardOf(options);
  if (!card.ok()) {
    Fail(card.status());
    return 2;
  }
  if (options.models) {
    if (options.json) {
      std::printf("%s\n", boost::json::serialize(ModelsJson(card->room())).c_str());
    } else {
      PrintModels(card->room());
    }
    return 0;
  }
  const auto model = Resolve(options);
  if (!model.ok()) {
    Fail(model.status());
    return 2;
  }
  if (options.json) {
    PrintJson(*model, options, *card);
  } else {
    PrintText(*model, options, *card);
  }
  return options.svg.empty() ? 0 : WritePlot(*model, options, *card);
}

}  // namespace

void AddSize(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  CLI::App* command = app.add_subcommand("size", "KV bytes, cost per token, how many conversations fit");
  command->add_option("file", options->file, "config.json, directory with one, or GGUF file");
  command->add_option("--layers", options->shape.layers)->check(CLI::PositiveNumber);
  command->add_option("--kv-heads", options->shape.kv_heads)->check(CLI::PositiveNumber);
  command->add_option("--head-dim", options->shape.head_dim)->check(CLI::PositiveNumber);
  command->add_option("--seq", options->seq, "tokens of a conversation (default: the model's context)")
      ->check(CLI::PositiveNumber);
  command->add_option("--window", options->shape.window, "sliding window in tokens, 0: none")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--batch", options->batch)->check(CLI::PositiveNumber);
  auto* bytes =
      command->add_option("--dtype-bytes", options->shape.element_bytes, "of an element: 2 for f16 and bf16")
          ->check(CLI::PositiveNumber);
  command
      ->add_option("--kv-type", options->kv_type,
                   "as a replica of that --kv-type holds it: f32, f16, bf16 or int8 (with its scales)")
      ->check(CLI::IsMember(replica::KvTypeNames()))
      ->excludes(bytes);
  command->add_option("--memory", options->memory, "of the card, like 80GiB: how many conversations fit");
  command->add_option("--weights", options->weights, "bytes of the weights on that card");
  auto* models = command->add_flag("--models", options->models, "a table of published models instead");
  command->add_option("--svg", options->svg, "also plot bytes over tokens into that file")->excludes(models);
  command->add_flag("--json", options->json);
  command->footer(
      "Examples:\n  kvring size --layers 32 --kv-heads 8 --head-dim 128 --seq 8192\n"
      "  kvring size --models --memory 80GiB --weights 16GiB\n"
      "  kvring size config.json --svg size.svg\n"
      "  kvring size config.json --memory 80GB --weights 16GB --json");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
