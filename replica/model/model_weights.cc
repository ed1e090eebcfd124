#include "replica/model/model_weights.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/dequantize.h"

namespace kvring::replica {
namespace {

using kernels::PackedMatrix;

PackedMatrix Pack(const GgufTensor& tensor, Precision precision) {
  const PackedMatrix::Shape shape{tensor.dim(1), tensor.dim(0)};
  const auto floats = [&](int64_t row, std::span<float> out) { DequantizeRow(tensor, row, out); };
  if (precision == Precision::kFp32) return PackedMatrix::PackF32(shape, floats);
  switch (tensor.type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
      return PackedMatrix::PackU4(
          shape, [&](int64_t row, std::span<kernels::U4Block> out) { ReadU4Row(tensor, row, out); });
    case TensorType::kQ8_0:
      return PackedMatrix::PackU8(
          shape, [&](int64_t row, std::span<kernels::U8Block> out) { ReadU8Row(tensor, row, out); });
    default:
      return PackedMatrix::PackBf16(shape, floats);
  }
}

// A matrix still to be packed; packing runs on all threads after every shape has been checked.
struct PackJob {
  const GgufTensor* tensor;
  PackedMatrix* matrix;
};

class Loader {
 public:
  Loader(const GgufFile& file, const ModelConfig& config) : file_(file), config_(config) {}

  absl::Status Plan(ModelWeights& weights) {
    const int64_t width = config_.width;
    KVRING_ASSIGN_OR_RETURN(weights.embedding, Find("token_embd.weight", config_.vocab_size, width));
    KVRING_RETURN_IF_ERROR(Vector("output_norm.weight", width, weights.output_norm));
    const char* head = file_.FindTensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight";
    KVRING_RETURN_IF_ERROR(Matrix(head, config_.vocab_size, width, weights.output));
    weights.layers.resize(static_cast<size_t>(config_.layers));
    for (int32_t i = 0; i < config_.layers; ++i) {
      KVRING_RETURN_IF_ERROR(PlanLayer(absl::StrCat("blk.", i, "."), weights.layers[static_cast<size_t>(i)]));
    }
    return absl::OkStatus();
  }

  const std::vector<PackJob>& jobs() const { return jobs_; }

 private:
  absl::Status PlanLayer(const std::string& prefix, LayerWeights& layer) {
    const int64_t width = config_.width;
    const int64_t ffn = config_.ffn_width;
    for (const char* bias :
         {"attn_q.bias", "attn_k.bias", "attn_v.bias", "attn_q_norm.weight", "ffn_gate_inp.weight"}) {
      if (file_.FindTensor(absl::StrCat(prefix, bias)) != nullptr) {
        return absl::UnimplementedError(
            absl::StrCat(file_.name(), ": tensor \"", prefix, bias, "\" is not supported"));
      }
    }
    KVRING_RETURN_IF_ERROR(Vector(absl::StrCat(prefix, "attn_norm.weight"), width, layer.attention_norm));
    KVRING_RETURN_IF_ERROR(Matrix(absl::StrCat(prefix, "attn_q.weight"), config_.q_width(), width, layer.q));
    KVRING_RETURN_IF_ERROR(Matrix(absl::StrCat(prefix, "attn_k.weight"), config_.kv_width(), width, layer.k));
    KVRING_RETURN_IF_ERROR(Matrix(absl::StrCat(prefix, "attn_v.weight"), config_.kv_width(), width, layer.v));
    KVRING_RETURN_IF_ERROR(
        Matrix(absl::StrCat(prefix, "attn_output.weight"), width, config_.q_width(), layer.o));
    KVRING_RETURN_IF_ERROR(Vector(absl::StrCat(prefix, "ffn_norm.weight"), width, layer.ffn_norm));
    KVRING_RETURN_IF_ERROR(Matrix(absl::StrCat(prefix, "ffn_gate.weight"), ffn, width, layer.gate));
    KVRING_RETURN_IF_ERROR(Matrix(absl::StrCat(prefix, "ffn_up.weight"), ffn, width, layer.up));
    return Matrix(absl::StrCat(prefix, "ffn_down.weight"), width, ffn, layer.down);
  }

  absl::StatusOr<const GgufTensor*> Find(const std::string& name, int64_t rows, int64_t cols) const {
    const GgufTensor* tensor = file_.FindTensor(name);
    if (tensor == nullptr) {
      return absl::NotFoundError(absl::StrCat(file_.name(), ": tensor \"", name, "\" is missing"));
    }
    if (tensor->dim(0) != cols || tensor->dim(1) != rows || tensor->dim(2) != 1 || tensor->dim(3) != 1) {
      return absl::InvalidArgumentError(absl::StrCat(file_.name(), ": tensor \"", name, "\" is ",
                                                     tensor->dim(1), " x ", tensor->dim(0),
                                                     ", the metadata say ", rows, " x ", cols));
    }
    if (!CanDequantize(tensor->type)) {
      return absl::UnimplementedError(absl::StrCat(file_.name(), ": tensor \"", name, "\" has type ",
                                                   TraitsOf(tensor->type)->name, ", which is not supported"));
    }
    return tensor;
  }

  absl::Status Vector(const std::string& name, int64_t size, std::vector<float>& out) const {
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, 1, size));
    out.resize(static_cast<size_t>(size));
    DequantizeRow(*tensor, 0, out);
    return absl::OkStatus();
  }

  absl::Status Matrix(const std::string& name, int64_t rows, int64_t cols, PackedMatrix& out) {
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, rows, cols));
    if (cols % 2 != 0) {
      return absl::UnimplementedError(
          absl::StrCat(file_.name(), ": tensor \"", name, "\" has an odd number of columns"));
    }
    jobs_.push_back({tensor, &out});
    return absl::OkStatus();
  }

  const GgufFile& file_;
  const ModelConfig& config_;
  std::vector<PackJob> jobs_;
};

}  // namespace

absl::StatusOr<ModelWeights> ModelWeights::Load(const GgufFile& file, const ModelConfig& config,
                                                Precision precision, kernels::ThreadPool& threads) {
  ModelWeights weights;
  Loader loader(file, config);
  KVRING_RETURN_IF_ERROR(loader.Plan(weights));
  const std::vector<PackJob>& jobs = loader.jobs();
  threads.Run(static_cast<int64_t>(jobs.size()), [&](int64_t i) {
    const PackJob& job = jobs[static_cast<size_t>(i)];
    *job.matrix = Pack(*job.tensor, precision);
  });
  return weights;
}

}  // namespace kvring::replica
