#include "deploy/cli/lab_model.h"

#include <unistd.h>

#include <boost/json.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"
#include "kernels/half.h"

namespace kvring::cli {
namespace {

constexpr int64_t kLayers = 12;
constexpr int64_t kWidth = 768;
constexpr int64_t kVocab = 50257;
constexpr int64_t kContext = 1024;
constexpr uint64_t kSeed = 124;

enum class Fill { kNormal, kOnes, kZeros };

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  Fill fill;

  int64_t size() const {
    int64_t product = 1;
    for (const int64_t dimension : shape) product *= dimension;
    return product;
  }
};

void AddNorm(const std::string& name, std::vector<Tensor>& tensors) {
  tensors.push_back({name + ".weight", {kWidth}, Fill::kOnes});
  tensors.push_back({name + ".bias", {kWidth}, Fill::kZeros});
}

// GPT-2 stores [in, out].
void AddLinear(const std::string& name, int64_t in, int64_t out, std::vector<Tensor>& tensors) {
  tensors.push_back({name + ".weight", {in, out}, Fill::kNormal});
  tensors.push_back({name + ".bias", {out}, Fill::kZeros});
}

std::vector<Tensor> Gpt2Tensors() {
  std::vector<Tensor> tensors = {{"wte.weight", {kVocab, kWidth}, Fill::kNormal},
                                 {"wpe.weight", {kContext, kWidth}, Fill::kNormal}};
  for (int64_t layer = 0; layer < kLayers; ++layer) {
    const std::string at = absl::StrCat("h.", layer, ".");
    AddNorm(at + "ln_1", tensors);
    AddLinear(at + "attn.c_attn", kWidth, 3 * kWidth, tensors);
    AddLinear(at + "attn.c_proj", kWidth, kWidth, tensors);
    AddNorm(at + "ln_2", tensors);
    AddLinear(at + "mlp.c_fc", kWidth, 4 * kWidth, tensors);
    AddLinear(at + "mlp.c_proj", 4 * kWidth, kWidth, tensors);
  }
  AddNorm("ln_f", tensors);
  return tensors;
}

std::string SafetensorsHeader(const std::vector<Tensor>& tensors) {
  boost::json::object header;
  int64_t offset = 0;
  for (const Tensor& tensor : tensors) {
    const int64_t end = offset + 2 * tensor.size();
    header[tensor.name] = {
        {"dtype", "BF16"}, {"shape", boost::json::value_from(tensor.shape)}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  return boost::json::serialize(header);
}

std::vector<kernels::Bf16Bits> Values(const Tensor& tensor, Random& random) {
  std::vector<kernels::Bf16Bits> values(static_cast<size_t>(tensor.size()),
                                        kernels::FloatToBf16(tensor.fill == Fill::kOnes ? 1.0F : 0.0F));
  if (tensor.fill != Fill::kNormal) return values;
  for (kernels::Bf16Bits& value : values) {
    const double radius = std::sqrt(-2 * std::log1p(-random.Uniform()));
    value = kernels::FloatToBf16(
        static_cast<float>(0.02 * radius * std::cos(2 * std::numbers::pi * random.Uniform())));
  }
  return values;
}

absl::Status WriteTensors(const std::string& file, uint64_t seed) {
  const std::vector<Tensor> tensors = Gpt2Tensors();
  const std::string header = SafetensorsHeader(tensors);
  const auto size = static_cast<uint64_t>(header.size());
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&size), sizeof size);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  Random random(seed);
  for (const Tensor& tensor : tensors) {
    const std::vector<kernels::Bf16Bits> values = Values(tensor, random);
    out.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(2 * values.size()));
  }
  out.close();
  return out ? absl::OkStatus() : absl::UnavailableError(absl::StrCat(file, ": cannot be written"));
}

absl::StatusOr<LabModel> Load(const std::string& path, const std::string& name,
                              const LabModelOptions& options) {
  replica::CpuOptions cpu;
  cpu.threads = options.threads;
  cpu.kv_tokens = options.kv_tokens;
  cpu.precision = options.dtype == "f32" ? replica::Precision::kFp32 : replica::Precision::kFast;
  cpu.window = options.window;
  KVRING_ASSIGN_OR_RETURN(std::unique_ptr<replica::CpuExecutor> executor,
                          replica::CpuExecutor::Load(path, cpu));
  return LabModel{name, std::move(executor)};
}

}  // namespace

absl::Status WriteRandomGpt2(const std::string& directory, uint64_t seed) {
  const boost::json::object config = {
      {"model_type", "gpt2"}, {"n_layer", kLayers},      {"n_head", 12},
      {"n_embd", kWidth},     {"n_positions", kContext}, {"vocab_size", kVocab}};
  const std::string file = directory + "/config.json";
  KVRING_RETURN_IF_ERROR(WriteFile(file, boost::json::serialize(config)));
  return WriteTensors(directory + "/model.safetensors", seed);
}

absl::StatusOr<LabModel> LoadLabModel(const LabModelOptions& options) {
  const std::filesystem::path path(options.model);
  if (options.model != "gpt2-124m") return Load(options.model, path.filename().string(), options);
  std::string directory = (std::filesystem::temp_directory_path() / "kvring-lab-XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr)
    return absl::UnavailableError(absl::StrCat(directory, ": cannot be made"));
  const absl::Status written = WriteRandomGpt2(directory, kSeed);
  // The loaded model reads its embeddings through the mapping, which outlives the names.
  absl::StatusOr<LabModel> model = written.ok() ? Load(directory, "GPT-2 124M (random weights)", options)
                                                : absl::StatusOr<LabModel>(written);
  std::filesystem::remove_all(directory);
  return model;
}

}  // namespace kvring::cli
