// Every model family against transformers (fp32): tiny random models in the real layouts
// (testdata/make_golden.py), read from safetensors and, rewritten as GGUF here, from GGUF; whole, chunked,
// through scattered tables, on every instruction set.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <numbers>
#include <set>

#include "replica/model/dequantize.h"
#include "replica/model/hf_tensors.h"
#include "tests/unit/replica/model/gguf_writer.h"
#include "tests/unit/replica/model/golden_logits.h"
#include "tests/unit/replica/model/greedy_run.h"

namespace kvring::replica {
namespace {

using testing::HasSubstr;
using Type = GgufValueType;

float LargestError(CpuExecutor& executor, const Golden& golden, int32_t chunk) {
  float worst = 0;
  ForEachLogit(executor, golden, chunk,
               [&](float got, float expected) { worst = std::max(worst, std::fabs(got - expected)); });
  return worst;
}

CpuOptions Options(Precision precision, kernels::Isa isa) {
  CpuOptions options;
  options.precision = precision;
  options.block_size = 5;
  options.kv_tokens = 60;
  options.isa = isa;
  return options;
}

struct FamilyCase {
  std::string family;
  int32_t window;
};

class FamilyTest : public testing::TestWithParam<FamilyCase> {};
INSTANTIATE_TEST_SUITE_P(Families, FamilyTest,
                         testing::Values(FamilyCase{"llama3", 0}, FamilyCase{"mistral", 9},
                                         FamilyCase{"qwen2", 0}, FamilyCase{"qwen3", 0},
                                         FamilyCase{"gpt2", 0}),
                         [](const auto& info) { return info.param.family; });

// fp32 logits of size about 10 differ from torch's in the last bits alone.
constexpr float kExactTolerance = 2e-4F;

TEST_P(FamilyTest, Safetensors_Fp32OnEveryIsa_LogitsEqualTransformers) {
  const Golden golden = LoadGolden(GetParam().family);
  ASSERT_EQ(golden.logits.size(), 4U);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    const auto executor = CpuExecutor::Load(FolderOf(GetParam().family), Options(Precision::kFp32, isa));
    ASSERT_TRUE(executor.ok()) << executor.status();
    EXPECT_EQ((*executor)->config().window, GetParam().window);
    EXPECT_LT(LargestError(**executor, golden, 1 << 20), kExactTolerance) << kernels::NameOf(isa);
    EXPECT_LT(LargestError(**executor, golden, 3), kExactTolerance) << kernels::NameOf(isa);
  }
}

// One layer sees everything, the other nine tokens: masks per layer, and no block may be given back.
TEST(FamiliesTest, WindowsPerLayer_Fp32OnEveryIsa_LogitsEqualTransformers) {
  const Golden golden = LoadGolden("qwen2_mixed");
  ASSERT_EQ(golden.logits.size(), 4U);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    const auto executor = CpuExecutor::Load(FolderOf("qwen2_mixed"), Options(Precision::kFp32, isa));
    ASSERT_TRUE(executor.ok()) << executor.status();
    EXPECT_EQ((*executor)->config().layer_windows, (std::vector<int32_t>{0, 9}));
    EXPECT_EQ((*executor)->limits().window, 0);
    for (const int32_t chunk : {1 << 20, 3})
      EXPECT_LT(LargestError(**executor, golden, chunk), kExactTolerance) << kernels::NameOf(isa);
  }
}

// bf16 keys, values, weights and activations: 8 bits of mantissa through two layers with sharp softmaxes (the
// random weights are large). Root mean square over all golden logits, relative to theirs: 0.4 % (gpt2) to 6.4
// % (qwen2) here, 0.7 % to 4.6 % for torch's own bf16; the fp32 tests judge the formulas.
TEST_P(FamilyTest, Safetensors_FastOnEveryIsa_LogitsNearTransformers) {
  const Golden golden = LoadGolden(GetParam().family);
  for (const kernels::Isa isa : kernels::SupportedIsas()) {
    const auto executor = CpuExecutor::Load(FolderOf(GetParam().family), Options(Precision::kFast, isa));
    ASSERT_TRUE(executor.ok()) << executor.status();
    double error = 0;
    double size = 0;
    ForEachLogit(**executor, golden, 7, [&](float got, float expected) {
      error += (got - expected) * (got - expected);
      size += expected * expected;
    });
    EXPECT_LT(std::sqrt(error / size), 0.08) << kernels::NameOf(isa);
  }
}

// --- the same models as GGUF ---

std::vector<float> RowsOf(const GgufTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.dim(0) * tensor.dim(1)));
  for (int64_t r = 0; r < tensor.dim(1); ++r) {
    DequantizeRow(tensor, r,
                  std::span(values).subspan(static_cast<size_t>(r * tensor.dim(0)),
                                            static_cast<size_t>(tensor.dim(0))));
  }
  return values;
}

// What the Llama converter does to Q and K: a head's row i of each half become neighbours.
std::vector<float> Permuted(const std::vector<float>& rows, int64_t heads, int64_t cols) {
  std::vector<float> out(rows.size());
  const int64_t dim = static_cast<int64_t>(rows.size()) / cols / heads;
  for (int64_t row = 0; row < heads * dim; ++row) {
    const int64_t in_head = row % dim;
    const int64_t to = row - in_head + in_head % (dim / 2) * 2 + in_head / (dim / 2);
    std::copy_n(rows.begin() + row * cols, cols, out.begin() + to * cols);
  }
  return out;
}

struct GgufTensorData {
  std::string name;
  std::vector<int64_t> dims;
  std::vector<float> values;
};

std::vector<GgufTensorData> Converted(const std::string& family, const ModelConfig& config) {
  std::vector<SafetensorsFile> shards;
  shards.push_back(*SafetensorsFile::Open(FolderOf(family) + "/model.safetensors"));
  const ModelTensors tensors = *MapHfTensors(shards, {config, std::nullopt}, family);
  std::vector<GgufTensorData> out;
  for (const auto& [name, tensor] : tensors.by_name) {
    GgufTensorData data{name, tensor.dims, RowsOf(tensor)};
    const bool q = name.ends_with("attn_q.weight");
    if (config.architecture == "llama" && (q || name.ends_with("attn_k.weight"))) {
      data.values = Permuted(data.values, q ? config.heads : config.kv_heads, config.width);
    }
    out.push_back(std::move(data));
  }
  return out;
}

void PutKeys(GgufWriter& w, const ModelConfig& c, const std::string& family, uint64_t& keys) {
  const auto key = [&](const std::string& name) { return ++keys, c.architecture + "." + name; };
  const auto number = [&](const std::string& name, int32_t value) {
    w.Key(key(name), Type::kUint32).Put<uint32_t>(static_cast<uint32_t>(value));
  };
  ++keys;
  w.Key("general.architecture", Type::kString).PutString(c.architecture);
  number("block_count", c.layers);
  number("embedding_length", c.width);
  number("feed_forward_length", c.ffn_width);
  number("context_length", c.context_length);
  number("attention.head_count", c.heads);
  number("attention.head_count_kv", c.kv_heads);
  number("attention.key_length", c.head_dim);
  number("attention.value_length", c.head_dim);
  if (c.window > 0) number("attention.sliding_window", c.window);
  const char* epsilon =
      family == "gpt2" ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon";
  w.Key(key(epsilon), Type::kFloat32).Put<float>(c.norm_epsilon);
  if (family == "qwen2" || family == "qwen3") {
    w.Key(key("rope.scaling.type"), Type::kString).PutString(family == "qwen2" ? "yarn" : "linear");
    w.Key(key("rope.scaling.factor"), Type::kFloat32).Put<float>(4);
    number("rope.scaling.original_context_length", 16);
  }
}

// Llama 3.1's smoothing as its paper gives it, in wavelengths: what a converter writes as divisors.
std::vector<float> Llama3Divisors(int32_t head_dim) {
  std::vector<float> divisors;
  for (int i = 0; i < head_dim / 2; ++i) {
    const double wavelength = 2 * std::numbers::pi * std::pow(10000.0, 2.0 * i / head_dim);
    const double smooth = (16 / wavelength - 1) / (4 - 1);
    divisors.push_back(wavelength < 4    ? 1.0F
                       : wavelength > 16 ? 8.0F
                                         : static_cast<float>(1 / ((1 - smooth) / 8 + smooth)));
  }
  return divisors;
}

GgufWriter AsGguf(const std::string& family, const ModelConfig& config) {
  std::vector<GgufTensorData> tensors = Converted(family, config);
  if (family == "llama3") {
    tensors.push_back({"rope_freqs.weight", {config.head_dim / 2}, Llama3Divisors(config.head_dim)});
  }
  GgufWriter keys;
  uint64_t count = 0;
  PutKeys(keys, config, family, count);
  GgufWriter w;
  w.Header(tensors.size(), count);
  w.Append({reinterpret_cast<const char*>(keys.bytes().data()), keys.size()});
  uint64_t offset = 0;
  for (const GgufTensorData& t : tensors) {
    w.Tensor(t.name, TensorType::kF32, t.dims, offset);
    offset += (t.values.size() * 4 + 31) / 32 * 32;
  }
  for (const GgufTensorData& t : tensors) {
    w.Align().Append({reinterpret_cast<const char*>(t.values.data()), t.values.size() * 4});
  }
  return w;
}

ModelConfig ConfigOf(const std::string& family) { return ModelSource::Open(FolderOf(family))->config(); }

TEST_P(FamilyTest, Gguf_Fp32_LogitsEqualTransformers) {
  const GgufWriter w = AsGguf(GetParam().family, ConfigOf(GetParam().family));
  auto file = GgufFile::Parse(w.bytes(), "family.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  const auto executor = CpuExecutor::Load(*std::move(file), Options(Precision::kFp32, kernels::BestIsa()));
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_LT(LargestError(**executor, LoadGolden(GetParam().family), 4), kExactTolerance);
}

TEST(FamiliesTest, Gguf_TensorOfNoKnownPart_IsRefusedByName) {
  ModelConfig config = ConfigOf("qwen2");
  config.layers = 1;  // the file holds two
  const GgufWriter w = AsGguf("qwen2", config);
  const auto executor = CpuExecutor::Load(*GgufFile::Parse(w.bytes(), "f.gguf"), {});
  EXPECT_EQ(executor.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(executor.status().message()), HasSubstr("f.gguf: tensor \"blk.1."));
}

// Writes some tensors of a family as a safetensors file.
void WriteShard(const SafetensorsFile& from, const std::set<std::string>& names, const std::string& path) {
  boost::json::object header;
  std::string data;
  for (const std::string& name : names) {
    const SafetensorsTensor& tensor = from.tensors().at(name);
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    header[name] = {{"dtype", tensor.dtype},
                    {"shape", boost::json::value_from(tensor.shape)},
                    {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = boost::json::serialize(header);
  const uint64_t length = text.size();
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8) << text << data;
}

TEST(FamiliesTest, ShardedSafetensors_LoadByTheIndex_MissingShardIsNamed) {
  const std::string folder = testing::TempDir() + "/kvring_sharded";
  std::filesystem::create_directories(folder);
  const auto whole = SafetensorsFile::Open(FolderOf("qwen2") + "/model.safetensors");
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::set<std::string> names[2];
  boost::json::object map;
  for (const auto& [name, tensor] : whole->tensors()) {
    const size_t shard = map.size() % 2;
    names[shard].insert(name);
    map[name] = "part-" + std::to_string(shard) + ".safetensors";
  }
  for (int i = 0; i < 2; ++i)
    WriteShard(*whole, names[i], folder + "/part-" + std::to_string(i) + ".safetensors");
  std::ofstream(folder + "/model.safetensors.index.json") << boost::json::object{{"weight_map", map}};
  std::filesystem::copy_file(FolderOf("qwen2") + "/config.json", folder + "/config.json",
                             std::filesystem::copy_options::overwrite_existing);
  {
    const auto executor = CpuExecutor::Load(folder, Options(Precision::kFp32, kernels::BestIsa()));
    ASSERT_TRUE(executor.ok()) << executor.status();
    EXPECT_LT(LargestError(**executor, LoadGolden("qwen2"), 8), kExactTolerance);
  }
  std::filesystem::remove(folder + "/part-1.safetensors");
  EXPECT_THAT(std::string(CpuExecutor::Load(folder, {}).status().message()), HasSubstr("part-1.safetensors"));
  std::filesystem::remove_all(folder);
}

// A batch where some rows' logits are wanted: the same bits as when all are.
TEST(FamiliesTest, WantedRowsOfSeveralSequences_SameBitsAsAllRows) {
  const auto executor = CpuExecutor::Load(FolderOf("qwen3"), Options(Precision::kFast, kernels::BestIsa()));
  ASSERT_TRUE(executor.ok()) << executor.status();
  const std::vector<TokenId> ids = LoadGolden("qwen3").ids;
  const std::vector<BlockId> a = {{0}, {3}};
  const std::vector<BlockId> b = {{4}, {1}};
  Batch batch;
  batch.steps.push_back({SequenceId{1}, std::span(ids).first(9), 0, a, 0});
  batch.steps.push_back({SequenceId{2}, std::span(ids).subspan(10, 7), 0, b, 0});
  StepOutput output;
  ASSERT_TRUE((*executor)->Execute(batch, output).ok());
  const std::vector<float> all(output.logits.begin(), output.logits.end());
  batch.steps[0].logits_from = 6;
  batch.steps[1].logits_from = 7;
  ASSERT_TRUE((*executor)->Execute(batch, output).ok());
  ASSERT_EQ(output.logits.size(), 3U * 48);
  EXPECT_TRUE(std::equal(output.logits.begin(), output.logits.end(), all.begin() + 6L * 48));
  batch.steps[0].logits_from = 9;
  batch.steps[1].logits_from = 5;
  ASSERT_TRUE((*executor)->Execute(batch, output).ok());
  ASSERT_EQ(output.logits.size(), 2U * 48);
  EXPECT_TRUE(std::equal(output.logits.begin(), output.logits.end(), all.begin() + (9 + 5) * 48L));
}

}  // namespace
}  // namespace kvring::replica
