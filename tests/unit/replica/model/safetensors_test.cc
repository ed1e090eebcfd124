#include "replica/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "replica/model/hf_config.h"
#include "replica/model/hf_tensors.h"

namespace kvring::replica {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string FileOf(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(data_bytes, '\0');
}

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string ErrorOfBytes(const std::string& bytes) {
  const auto file = SafetensorsFile::Parse(Bytes(bytes), "x.safetensors");
  return file.ok() ? "" : std::string(file.status().message());
}
std::string ErrorOf(const std::string& header, size_t data_bytes) {
  return ErrorOfBytes(FileOf(header, data_bytes));
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         offsets + "]}";
}

TEST(SafetensorsTest, Mod07_UnorderedKeysAndMetadata_Loads) {
  const std::string bytes =
      FileOf("{" + Tensor("b", "F16", "2,3", "16,28") + ",\"__metadata__\":{\"format\":\"pt\"}," +
                 Tensor("scalar", "I64", "", "28,36") + "," + Tensor("a", "F32", "4", "0,16") + "}  ",
             36);
  const auto file = SafetensorsFile::Parse(Bytes(bytes), "x.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(file->tensors().size(), 3U);
  const SafetensorsTensor& b = file->tensors().at("b");
  EXPECT_EQ(b.dtype, "F16");
  EXPECT_THAT(b.shape, ElementsAre(2, 3));
  EXPECT_EQ(b.data.size(), 12U);
  EXPECT_EQ(static_cast<const void*>(b.data.data()), bytes.data() + bytes.size() - 36 + 16);
}

TEST(SafetensorsTest, Mod07_HeaderLengths_AreErrors) {
  for (const uint64_t length : {~uint64_t{0}, uint64_t{40}, uint64_t{(100 << 20) + 1}, uint64_t{33}}) {
    std::string bytes(40, ' ');  // 32 bytes follow the length
    std::memcpy(bytes.data(), &length, 8);
    EXPECT_THAT(ErrorOfBytes(bytes), HasSubstr("header length at offset 0: " + std::to_string(length)));
  }
  for (size_t size = 0; size < 8; ++size)
    EXPECT_THAT(ErrorOfBytes(std::string(size, '\0')), HasSubstr("header length"));
}

TEST(SafetensorsTest, Mod07_HeaderOf100MiBAndOne_IsAnErrorEvenIfTheFileHoldsIt) {
  EXPECT_THAT(ErrorOf("{}" + std::string((100 << 20) - 1, ' '), 0), HasSubstr("header length"));
}

TEST(SafetensorsTest, Mod07_Offsets_AreErrorsThatNameTheTensor) {
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "U8", "6", "10,4") + "}", 10),
              HasSubstr("tensor \"A\": data_offsets [10, 4]"));
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "U8", "11", "0,11") + "}", 10),
              HasSubstr("tensor \"A\": data_offsets"));
  EXPECT_THAT(
      ErrorOf("{" + Tensor("A", "U8", "100", "0,100") + "," + Tensor("B", "U8", "100", "50,150") + "}", 150),
      HasSubstr("tensor \"B\": overlaps"));
  EXPECT_THAT(
      ErrorOf("{" + Tensor("A", "U8", "100", "0,100") + "," + Tensor("B", "U8", "30", "120,150") + "}", 150),
      HasSubstr("tensor \"B\": leaves a hole at 100 to 120"));
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "U8", "100", "0,100") + "}", 120),
              HasSubstr("20 bytes after the last tensor"));
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "U8", "1", "-1,0") + "}", 1),
              HasSubstr("tensor \"A\": data_offsets has"));
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "U8", "1", "0,99999999999999999999") + "}", 1),
              HasSubstr("tensor \"A\""));
}

TEST(SafetensorsTest, Mod07_SizesTypesAndRepetition_AreErrorsThatNameTheTensor) {
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "F32", "2,2", "0,15") + "}", 15),
              HasSubstr("tensor \"A\": has 15 bytes, its shape says 16"));
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "X9", "2,2", "0,16") + "}", 16),
              HasSubstr("tensor \"A\": dtype \"X9\" is unknown"));
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "F32", "4294967296,4294967296", "0,0") + "}", 0),
              HasSubstr("tensor \"A\": shape is past 2^63"));
  EXPECT_THAT(ErrorOf("{" + Tensor("A", "U8", "1", "0,1") + "," + Tensor("A", "U8", "1", "1,2") + "}", 2),
              HasSubstr("tensor \"A\": is there twice"));
  EXPECT_THAT(ErrorOf("{\"A\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
              HasSubstr("tensor \"A\""));
  EXPECT_THAT(ErrorOf("{\"A\":{\"dtype\":\"U8\",\"shape\":[1]}}", 0), HasSubstr("tensor \"A\": lacks"));
  EXPECT_THAT(ErrorOf("{\"A\":7}", 0), HasSubstr("tensor \"A\": is no object"));
}

TEST(SafetensorsTest, Mod07_DeepOrBrokenJson_IsAnError) {
  const std::string deep = std::string(10000, '[') + std::string(10000, ']');
  EXPECT_NE(ErrorOf(deep, 0), "");
  EXPECT_NE(ErrorOf("{\"A\":" + deep + "}", 0), "");
  EXPECT_NE(ErrorOf("{\"__metadata__\":{\"a\":" + deep + "}}", 0), "");
  EXPECT_NE(ErrorOf("{\"A\":{\"dtype\":\"U8\",\"shape\":" + deep + ",\"data_offsets\":[0,0]}}", 0), "");
  for (const char* header : {"", "{", "[]", "{}{}", "{} x", "nul", "{\"A\":{}}", "{\"A\"}"}) {
    EXPECT_NE(ErrorOf(header, 0), "") << header;
  }
}

TEST(SafetensorsTest, Mod07_EveryTruncation_IsAnError) {
  const std::string good =
      FileOf("{" + Tensor("a", "F32", "4", "0,16") + "," + Tensor("b", "U8", "3", "16,19") + "}", 19);
  ASSERT_EQ(ErrorOfBytes(good), "");
  for (size_t size = 0; size < good.size(); ++size) EXPECT_NE(ErrorOfBytes(good.substr(0, size)), "") << size;
}

// --- names, ties ---

absl::StatusOr<ModelTensors> Map(const std::string& bytes, std::optional<bool> tied,
                                 const std::string& architecture = "llama") {
  std::vector<SafetensorsFile> shards;
  shards.push_back(*SafetensorsFile::Parse(Bytes(bytes), "x.safetensors"));
  HfConfig config;
  config.model.architecture = architecture;
  config.tied = tied;
  return MapHfTensors(shards, config, "folder");
}

TEST(HfTensorsTest, Mod10_TiedOrAbsent_UsesTheEmbedding_FalseWithoutHeadIsAnError) {
  const std::string untied =
      FileOf("{" + Tensor("model.embed_tokens.weight", "F32", "2,2", "0,16") + "}", 16);
  for (const std::optional<bool> tied : {std::optional(true), std::optional<bool>()}) {
    const auto tensors = Map(untied, tied);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    EXPECT_TRUE(tensors->by_name.contains("token_embd.weight"));
    EXPECT_FALSE(tensors->by_name.contains("output.weight"));
  }
  const std::string error(Map(untied, false).status().message());
  EXPECT_THAT(error, HasSubstr("lm_head.weight"));
  EXPECT_THAT(error, HasSubstr("tie_word_embeddings is false; set it to true"));
  const std::string with_head = FileOf("{" + Tensor("lm_head.weight", "BF16", "2,2", "0,8") + "}", 8);
  EXPECT_TRUE(Map(with_head, false)->by_name.contains("output.weight"));
  EXPECT_TRUE(Map(with_head, std::nullopt)->by_name.contains("output.weight"));
  EXPECT_FALSE(Map(with_head, true)->by_name.contains("output.weight"));
}

TEST(HfTensorsTest, UnsupportedType_NamesTheTensor) {
  const std::string bytes = FileOf("{" + Tensor("model.norm.weight", "F64", "2", "0,16") + "}", 16);
  EXPECT_THAT(std::string(Map(bytes, std::nullopt).status().message()),
              HasSubstr("x.safetensors: tensor \"model.norm.weight\" has type F64"));
}

TEST(HfTensorsTest, Gpt2Linear_IsReadTransposed) {
  const std::string bytes = FileOf("{" + Tensor("h.3.mlp.c_fc.weight", "F32", "2,8", "0,64") + "," +
                                       Tensor("h.3.attn.bias", "BOOL", "1", "64,65") + "}",
                                   65);
  const auto tensors = Map(bytes, std::nullopt, "gpt2");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->by_name.size(), 1U);
  const GgufTensor& tensor = tensors->by_name.at("blk.3.ffn_up.weight");
  EXPECT_TRUE(tensor.transposed);
  EXPECT_THAT(tensor.dims, ElementsAre(2, 8));
}

// --- config.json ---

std::string ConfigText(const std::string& extra) {
  return R"({"num_hidden_layers":4,"hidden_size":32,"intermediate_size":48,"max_position_embeddings":64,"vocab_size":48,)"
         R"("num_attention_heads":4,)" +
         extra + "}";
}

TEST(HfConfigTest, Qwen2Windows_OfSomeLayers_ArePerLayer) {
  const auto some = ParseHfConfig(
      ConfigText(
          R"("model_type":"qwen2","use_sliding_window":true,"sliding_window":8,"max_window_layers":3)"),
      "c");
  ASSERT_TRUE(some.ok()) << some.status();
  EXPECT_EQ(some->model.window, 0);
  EXPECT_THAT(some->model.layer_windows, ElementsAre(0, 0, 0, 8));
  const auto unused = ParseHfConfig(ConfigText(R"("model_type":"qwen2","sliding_window":8)"), "c");
  ASSERT_TRUE(unused.ok()) << unused.status();
  EXPECT_EQ(unused->model.window, 0);
  EXPECT_TRUE(unused->model.layer_windows.empty());
}

TEST(HfConfigTest, WhatIsNotBuiltIn_IsAnErrorThatNamesTheKey) {
  const auto error = [](const std::string& extra) {
    return std::string(ParseHfConfig(ConfigText(extra), "c.json").status().message());
  };
  EXPECT_THAT(error(R"("model_type":"mamba")"), HasSubstr("c.json: \"model_type\""));
  EXPECT_THAT(error(R"("model_type":"llama","hidden_act":"relu")"), HasSubstr("hidden_act"));
  EXPECT_THAT(error(R"("model_type":"llama","rope_scaling":{"type":"dynamic","factor":2})"),
              HasSubstr("dynamic"));
  EXPECT_THAT(error(R"("model_type":"llama","rope_scaling":{"rope_type":"longrope","factor":2})"),
              HasSubstr("\"rope_scaling.rope_type\" is longrope"));
  EXPECT_THAT(error(R"("model_type":"llama","rope_scaling":{"rope_type":"linear"})"),
              HasSubstr("\"rope_scaling.factor\" is missing"));
  EXPECT_THAT(error(R"("model_type":"llama","rope_scaling":{"rope_type":"llama3","factor":8})"),
              HasSubstr("\"rope_scaling.low_freq_factor\" is missing"));
  EXPECT_THAT(
      error(
          R"("model_type":"llama","rope_parameters":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})"),
      HasSubstr("\"rope_parameters.high_freq_factor\" is not above"));
  EXPECT_THAT(error(R"("model_type":"llama","rope_scaling":7)"), HasSubstr("\"rope_scaling\" is no object"));
  EXPECT_THAT(error(R"("model_type":"llama","model_type":"llama")"),
              HasSubstr("\"model_type\" is there twice"));
  EXPECT_THAT(error(R"("model_type":"llama","num_key_value_heads":3)"), HasSubstr("num_key_value_heads"));
  EXPECT_THAT(error(R"("model_type":"llama","head_dim":7)"), HasSubstr("head_dim"));
  EXPECT_THAT(std::string(ParseHfConfig("[", "c.json").status().message()),
              HasSubstr("c.json: is no JSON object"));
}

}  // namespace
}  // namespace kvring::replica
