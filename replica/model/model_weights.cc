#include "replica/model/model_weights.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/dequantize.h"

namespace kvring::replica {
namespace {

using kernels::PackedMatrix;

// A matrix still to be packed, rows [first_row, first_row + rows) of a tensor; packing runs on all threads
// after every shape has been checked.
struct PackJob {
  const GgufTensor* tensor;
  int64_t first_row;
  int64_t rows;
  PackedMatrix* matrix;
};

PackedMatrix Pack(const PackJob& job, Precision precision) {
  const GgufTensor& tensor = *job.tensor;
  const PackedMatrix::Shape shape{job.rows, tensor.dim(0)};
  const auto floats = [&](int64_t row, std::span<float> out) {
    DequantizeRow(tensor, job.first_row + row, out);
  };
  if (precision == Precision::kFp32) return PackedMatrix::PackF32(shape, floats);
  if (precision == Precision::kBf16Rows) return PackedMatrix::PackBf16Rows(shape, floats);
  switch (tensor.type) {
    case TensorType::kQ4_0:
    case TensorType::kQ4_1:
      return PackedMatrix::PackU4(shape, [&](int64_t row, std::span<kernels::U4Block> out) {
        ReadU4Row(tensor, job.first_row + row, out);
      });
    case TensorType::kQ8_0:
      return PackedMatrix::PackU8(shape, [&](int64_t row, std::span<kernels::U8Block> out) {
        ReadU8Row(tensor, job.first_row + row, out);
      });
    default:
      return PackedMatrix::PackBf16(shape, floats);
  }
}

class Loader {
 public:
  Loader(const ModelTensors& tensors, const ModelConfig& config) : tensors_(tensors), config_(config) {}

  absl::Status Plan(ModelWeights& weights) {
    const int64_t width = config_.width;
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* embedding,
                            Find("token_embd.weight", config_.vocab_size, width));
    weights.embedding = *embedding;
    if (config_.positions == PositionKind::kLearned) {
      KVRING_RETURN_IF_ERROR(Positions(weights.positions));
    }
    KVRING_RETURN_IF_ERROR(Norm("output_norm", weights.output_norm));
    const char* head = Has("output.weight") ? "output.weight" : "token_embd.weight";
    KVRING_RETURN_IF_ERROR(Matrix(head, {config_.vocab_size, width}, weights.output));
    // Each layer has several tensors, so memory stays in proportion to the file.
    if (static_cast<size_t>(config_.layers) > tensors_.by_name.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat(tensors_.file, ": ", config_.layers, " layers are more than the tensors"));
    }
    weights.layers.resize(static_cast<size_t>(config_.layers));
    for (int32_t i = 0; i < config_.layers; ++i) {
      KVRING_RETURN_IF_ERROR(PlanLayer(absl::StrCat("blk.", i, "."), weights.layers[static_cast<size_t>(i)]));
    }
    return RefuseUnused();
  }

  const std::vector<PackJob>& jobs() const { return jobs_; }

 private:
  absl::Status PlanLayer(const std::string& prefix, LayerWeights& layer) {
    const int64_t width = config_.width;
    const int64_t ffn = config_.ffn_width;
    const auto name = [&](const char* part) { return absl::StrCat(prefix, part); };
    KVRING_RETURN_IF_ERROR(Norm(name("attn_norm"), layer.attention_norm));
    KVRING_RETURN_IF_ERROR(PlanQkv(prefix, layer));
    KVRING_RETURN_IF_ERROR(OptionalVector(name("attn_q_norm.weight"), config_.head_dim, layer.q_norm));
    KVRING_RETURN_IF_ERROR(OptionalVector(name("attn_k_norm.weight"), config_.head_dim, layer.k_norm));
    KVRING_RETURN_IF_ERROR(Linear(name("attn_output"), {width, config_.q_width()}, layer.o));
    KVRING_RETURN_IF_ERROR(Norm(name("ffn_norm"), layer.ffn_norm));
    if (config_.feed_forward == FeedForwardKind::kSwiGlu) {
      KVRING_RETURN_IF_ERROR(Linear(name("ffn_gate"), {ffn, width}, layer.gate));
    }
    KVRING_RETURN_IF_ERROR(Linear(name("ffn_up"), {ffn, width}, layer.up));
    return Linear(name("ffn_down"), {width, ffn}, layer.down);
  }

  // Q, K and V, apart or one above the other in one matrix.
  absl::Status PlanQkv(const std::string& prefix, LayerWeights& layer) {
    const std::string fused = absl::StrCat(prefix, "attn_qkv");
    LinearWeights* parts[] = {&layer.q, &layer.k, &layer.v};
    const char* names[] = {"attn_q", "attn_k", "attn_v"};
    const int64_t rows[] = {config_.q_width(), config_.kv_width(), config_.kv_width()};
    if (!Has(fused + ".weight")) {
      for (int i = 0; i < 3; ++i) {
        KVRING_RETURN_IF_ERROR(Linear(absl::StrCat(prefix, names[i]), {rows[i], config_.width}, *parts[i]));
      }
      return absl::OkStatus();
    }
    const int64_t all = rows[0] + rows[1] + rows[2];
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* tensor, FindMatrix(fused + ".weight", {all, config_.width}));
    std::vector<float> bias;
    KVRING_RETURN_IF_ERROR(OptionalVector(fused + ".bias", all, bias));
    int64_t first = 0;
    for (int i = 0; i < 3; first += rows[i], ++i) {
      jobs_.push_back({tensor, first, rows[i], &parts[i]->matrix});
      if (!bias.empty()) parts[i]->bias.assign(bias.begin() + first, bias.begin() + first + rows[i]);
    }
    return absl::OkStatus();
  }

  // "<file>: tensor "<name>"".
  std::string Place(const std::string& name) const {
    const bool same = tensors_.name_in_file == nullptr;
    return absl::StrCat(tensors_.file, ": tensor \"", same ? name : tensors_.name_in_file(name), "\"");
  }
  bool Has(std::string_view name) const { return tensors_.by_name.contains(name); }

  absl::StatusOr<const GgufTensor*> Find(const std::string& name, int64_t rows, int64_t cols) {
    const auto found = tensors_.by_name.find(name);
    if (found == tensors_.by_name.end()) {
      return absl::NotFoundError(absl::StrCat(Place(name), " is missing"));
    }
    const GgufTensor& tensor = found->second;
    if (tensor.dim(0) != cols || tensor.dim(1) != rows || tensor.dim(2) != 1 || tensor.dim(3) != 1) {
      return absl::InvalidArgumentError(absl::StrCat(Place(name), " is ", tensor.dim(1), " x ", tensor.dim(0),
                                                     ", the metadata say ", rows, " x ", cols));
    }
    if (!CanDequantize(tensor.type)) {
      return absl::UnimplementedError(
          absl::StrCat(Place(name), " has type ", TraitsOf(tensor.type)->name, ", which is not supported"));
    }
    used_.insert(name);
    return &tensor;
  }

  absl::Status Vector(const std::string& name, int64_t size, std::vector<float>& out) {
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, 1, size));
    out.resize(static_cast<size_t>(size));
    DequantizeRow(*tensor, 0, out);
    return absl::OkStatus();
  }
  absl::Status OptionalVector(const std::string& name, int64_t size, std::vector<float>& out) {
    return Has(name) ? Vector(name, size, out) : absl::OkStatus();
  }
  absl::Status Norm(const std::string& name, NormWeights& out) {
    KVRING_RETURN_IF_ERROR(Vector(name + ".weight", config_.width, out.weight));
    return config_.norm == NormKind::kLayer ? OptionalVector(name + ".bias", config_.width, out.bias)
                                            : absl::OkStatus();
  }
  absl::Status Positions(std::vector<float>& out) {
    const int64_t rows = config_.context_length;
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find("position_embd.weight", rows, config_.width));
    out.resize(static_cast<size_t>(rows * config_.width));
    for (int64_t row = 0; row < rows; ++row) {
      DequantizeRow(*tensor, row,
                    std::span(out).subspan(static_cast<size_t>(row * config_.width),
                                           static_cast<size_t>(config_.width)));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<const GgufTensor*> FindMatrix(const std::string& name, PackedMatrix::Shape shape) {
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* tensor, Find(name, shape.rows, shape.cols));
    if (shape.cols % 2 == 0) return tensor;
    return absl::UnimplementedError(absl::StrCat(Place(name), " has an odd number of columns"));
  }
  absl::Status Matrix(const std::string& name, PackedMatrix::Shape shape, PackedMatrix& out) {
    KVRING_ASSIGN_OR_RETURN(const GgufTensor* tensor, FindMatrix(name, shape));
    jobs_.push_back({tensor, 0, shape.rows, &out});
    return absl::OkStatus();
  }
  absl::Status Linear(const std::string& name, PackedMatrix::Shape shape, LinearWeights& out) {
    KVRING_RETURN_IF_ERROR(Matrix(name + ".weight", shape, out.matrix));
    return OptionalVector(name + ".bias", shape.rows, out.bias);
  }

  // A part that is not computed would give wrong answers in silence. rope_freqs is the configuration's.
  absl::Status RefuseUnused() const {
    for (const auto& [name, tensor] : tensors_.by_name) {
      if (name == "rope_freqs.weight" || used_.contains(name)) continue;
      return absl::UnimplementedError(absl::StrCat(Place(name), " is no part of a ", config_.architecture,
                                                   " model of ", config_.layers,
                                                   " layers that is supported"));
    }
    return absl::OkStatus();
  }

  const ModelTensors& tensors_;
  const ModelConfig& config_;
  std::vector<PackJob> jobs_;
  std::set<std::string, std::less<>> used_;
};

}  // namespace

ModelTensors TensorsOf(const GgufFile& file) {
  ModelTensors tensors{file.name(), {}, nullptr};
  for (const GgufTensor& tensor : file.tensors()) tensors.by_name.emplace(tensor.name, tensor);
  return tensors;
}

absl::StatusOr<ModelWeights> ModelWeights::Load(const ModelTensors& tensors, const ModelConfig& config,
                                                Precision precision, kernels::ThreadPool& threads) {
  ModelWeights weights;
  Loader loader(tensors, config);
  KVRING_RETURN_IF_ERROR(loader.Plan(weights));
  const std::vector<PackJob>& jobs = loader.jobs();
  threads.Run(static_cast<int64_t>(jobs.size()), [&](int64_t i) {
    const PackJob& job = jobs[static_cast<size_t>(i)];
    *job.matrix = Pack(job, precision);
  });
  return weights;
}

}  // namespace kvring::replica
