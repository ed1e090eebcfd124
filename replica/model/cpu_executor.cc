#include "replica/model/cpu_executor.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/block_hash.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

constexpr int64_t kMaxKvBytes = int64_t{1} << 42;
constexpr int32_t kMaxThreads = 256;

kernels::KvShape ShapeOf(const ModelConfig& config, const CpuOptions& options) {
  return {config.layers,
          config.kv_heads,
          config.head_dim,
          options.block_size,
          static_cast<int>(options.kv_tokens / options.block_size),
          KvTypeOf(options)};
}

absl::Status CheckOptions(const ModelConfig& config, const CpuOptions& options) {
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads: ", options.threads, " is not 1 to ", kMaxThreads));
  }
  if (options.block_size < 1 || options.block_size > 4096) {
    return absl::InvalidArgumentError(absl::StrCat("block_size: ", options.block_size, " is not 1 to 4096"));
  }
  if (options.kv_tokens < options.block_size || options.kv_tokens > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("kv_tokens: ", options.kv_tokens,
                                                   " is not at least one block of ", options.block_size,
                                                   " and below 2^31"));
  }
  const kernels::KvShape shape = ShapeOf(config, options);
  if (shape.block_bytes() > kMaxKvBytes / shape.num_blocks) {
    return absl::InvalidArgumentError(
        absl::StrCat("kv_tokens: ", options.kv_tokens, " would take more than ", kMaxKvBytes, " bytes"));
  }
  if (options.window.has_value() && *options.window < 0) {
    return absl::InvalidArgumentError(absl::StrCat("window: ", *options.window, " is negative"));
  }
  if (!kernels::IsSupported(options.isa)) {
    return absl::InvalidArgumentError(
        absl::StrCat("isa: this CPU has no ", std::string(kernels::NameOf(options.isa))));
  }
  return absl::OkStatus();
}

std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

uint64_t FingerprintOf(const ModelTensors& tensors, const kernels::KvShape& shape,
                       const CpuOptions& options) {
  constexpr size_t kSample = 4096;
  BlockHash hash = ChainNext(
      BlockHash{}, absl::StrCat(shape.layers, " ", shape.kv_heads, " ", shape.head_dim, " ", shape.block_size,
                                " ", static_cast<int>(shape.type), " ", static_cast<int>(options.precision),
                                " ", static_cast<int>(options.isa), " ", options.window.value_or(-1)));
  for (const auto& [name, tensor] : tensors.by_name) {
    const size_t sample = std::min(kSample, tensor.data.size());
    hash = ChainNext(hash, absl::StrCat(name, " ", static_cast<int>(tensor.type), " ", tensor.data.size(),
                                        " ", absl::StrJoin(tensor.dims, "x")));
    hash = ChainNext(hash, AsText(tensor.data.first(sample)));
    hash = ChainNext(hash, AsText(tensor.data.last(sample)));
  }
  return hash.value;
}

}  // namespace

kernels::KvType KvTypeOf(const CpuOptions& options) {
  const bool exact = options.precision == Precision::kFp32;
  return options.kv_type.value_or(exact ? kernels::KvType::kF32 : kernels::KvType::kBf16);
}

absl::StatusOr<kernels::KvType> ParseKvType(std::string_view name) {
  if (name == "f32") return kernels::KvType::kF32;
  if (name == "f16") return kernels::KvType::kF16;
  if (name == "bf16") return kernels::KvType::kBf16;
  if (name == "int8") return kernels::KvType::kInt8;
  return absl::InvalidArgumentError(
      absl::StrCat("'", std::string(name), "' is no type of keys and values (f32, f16, bf16 and int8 are)"));
}

int64_t KvBytesPerToken(const ModelConfig& config, kernels::KvType type) {
  return kernels::KvShape{config.layers, config.kv_heads, config.head_dim, 1, 1, type}.token_bytes();
}

absl::StatusOr<std::unique_ptr<CpuExecutor>> CpuExecutor::Load(const std::string& path,
                                                               const CpuOptions& options) {
  KVRING_ASSIGN_OR_RETURN(ModelSource source, ModelSource::Open(path));
  return Load(std::move(source), options);
}

absl::StatusOr<std::unique_ptr<CpuExecutor>> CpuExecutor::Load(GgufFile file, const CpuOptions& options) {
  KVRING_ASSIGN_OR_RETURN(ModelSource source, ModelSource::FromGguf(std::move(file)));
  return Load(std::move(source), options);
}

absl::StatusOr<std::unique_ptr<CpuExecutor>> CpuExecutor::Load(ModelSource source,
                                                               const CpuOptions& options) {
  ModelConfig config = source.config();
  KVRING_RETURN_IF_ERROR(CheckOptions(config, options));
  if (options.window.has_value()) {
    config.window = *options.window;
    config.layer_windows.clear();
  }
  std::unique_ptr<CpuExecutor> executor(new CpuExecutor(std::move(source), std::move(config), options));
  KVRING_RETURN_IF_ERROR(executor->LoadWeights(options.precision));
  return executor;
}

CpuExecutor::CpuExecutor(ModelSource source, ModelConfig config, const CpuOptions& options)
    : source_(std::move(source)),
      config_(std::move(config)),
      threads_(options.threads),
      kv_(ShapeOf(config_, options)),
      isa_(options.isa),
      kv_fingerprint_(FingerprintOf(source_.tensors(), kv_.shape(), options)) {
  const kernels::KvShape& shape = kv_.shape();
  limits_ = {config_.vocab_size, config_.context_length, shape.block_size,
             shape.num_blocks,   shape.token_bytes(),    config_.window};
}

absl::Status CpuExecutor::LoadWeights(Precision precision) {
  KVRING_ASSIGN_OR_RETURN(weights_, ModelWeights::Load(source_.tensors(), config_, precision, threads_));
  transformer_.emplace(Transformer::Resources{&config_, &weights_, &kv_, &threads_, isa_});
  return absl::OkStatus();
}

absl::Status CpuExecutor::Execute(const Batch& batch, StepOutput& output) {
  for (const BlockCopy& copy : batch.copies) kv_.CopyBlock(copy.from, copy.to);
  output.tokens.clear();
  output.logits = transformer_->Forward(batch);
  return absl::OkStatus();
}

}  // namespace kvring::replica
