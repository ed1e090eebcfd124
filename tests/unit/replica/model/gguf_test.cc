#include "replica/model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <limits>
#include <memory>

#include "replica/model/model_config.h"
#include "tests/unit/replica/model/gguf_writer.h"

namespace kvring::replica {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Type = GgufValueType;

std::string ErrorOf(const GgufWriter& writer) {
  const auto file = GgufFile::Parse(writer.bytes(), "x.gguf");
  return file.ok() ? "" : std::string(file.status().message());
}

// A header with every kind of value and two tensors, about 40 KiB.
GgufWriter GoodFile() {
  GgufWriter w;
  w.Header(2, 9);
  w.Key("a.u8", Type::kUint8).Put<uint8_t>(200);
  w.Key("a.i16", Type::kInt16).Put<int16_t>(-3);
  w.Key("a.u64", Type::kUint64).Put<uint64_t>(std::numeric_limits<uint64_t>::max());
  w.Key("a.f32", Type::kFloat32).Put<float>(0.5F);
  w.Key("a.bool", Type::kBool).Put<uint8_t>(1);
  w.Key("a.text", Type::kString).PutString("llama");
  w.Array("a.strings", Type::kString, 3).PutString("x").PutString("").PutString("yz");
  w.Array("a.ints", Type::kInt32, 2).Put<int32_t>(-7).Put<int32_t>(8);
  w.Array("a.floats", Type::kFloat32, 2).Put<float>(1.5F).Put<float>(-2.0F);
  w.Tensor("t.f32", TensorType::kF32, {4, 3}, 0);
  w.Tensor("t.q4_1", TensorType::kQ4_1, {64, 1000}, 64);
  w.Align().Append(std::string(64 + 40 * 1000, '\x11'));
  return w;
}

TEST(GgufTest, GoodFile_GivesEveryValueAndTensor) {
  const GgufWriter w = GoodFile();
  const auto file = GgufFile::Parse(w.bytes(), "x.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*file->GetUint("a.u8"), 200U);
  EXPECT_EQ(*file->GetInt("a.i16"), -3);
  EXPECT_EQ(*file->GetUint("a.u64"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(*file->GetFloat("a.f32"), 0.5);
  EXPECT_TRUE(*file->GetBool("a.bool"));
  EXPECT_EQ(*file->GetString("a.text"), "llama");
  EXPECT_THAT(*file->GetStringArray("a.strings"), ElementsAre("x", "", "yz"));
  EXPECT_THAT(*file->GetIntArray("a.ints"), ElementsAre(-7, 8));
  EXPECT_THAT(*file->GetFloatArray("a.floats"), ElementsAre(1.5F, -2.0F));
  EXPECT_EQ(file->Keys().size(), 9U);
  const GgufTensor* tensor = file->FindTensor("t.q4_1");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->dims, ElementsAre(64, 1000));
  EXPECT_EQ(tensor->data.size(), 40000U);
  EXPECT_EQ(tensor->data.data() + tensor->data.size(), w.bytes().data() + w.size());
  EXPECT_EQ(file->FindTensor("t.none"), nullptr);
}

TEST(GgufTest, Getter_WrongTypeOrMissing_NamesFileAndKey) {
  const GgufWriter w = GoodFile();
  const auto file = GgufFile::Parse(w.bytes(), "x.gguf");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->GetString("no").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(file->GetString("no").status().message()),
              HasSubstr("x.gguf: key \"no\" is missing"));
  EXPECT_THAT(std::string(file->GetString("a.u8").status().message()), HasSubstr("is uint8, not a string"));
  EXPECT_THAT(std::string(file->GetStringArray("a.ints").status().message()), HasSubstr("array of int32"));
  EXPECT_FALSE(file->GetUint("a.i16").ok());
  EXPECT_FALSE(file->GetInt("a.u64").ok());
  EXPECT_FALSE(file->GetIntArray("a.u8").ok());
  EXPECT_FALSE(file->GetFloatArray("a.ints").ok());
  EXPECT_FALSE(file->GetBool("a.u8").ok());
}

TEST(GgufTest, Mod01_HugeCountsAndLengths_AreErrorsWithFieldAndOffset) {
  GgufWriter many_keys;
  many_keys.Header(0, uint64_t{1} << 60);
  EXPECT_THAT(ErrorOf(many_keys), HasSubstr("x.gguf: n_kv at offset 16"));
  GgufWriter long_key;
  long_key.Header(0, 1).Put<uint64_t>(std::numeric_limits<uint64_t>::max()).Put<uint64_t>(0);
  EXPECT_THAT(ErrorOf(long_key), HasSubstr("key 0 at offset 24: length 18446744073709551615"));
  GgufWriter many_strings;
  many_strings.Header(0, 1).Array("k", Type::kString, uint64_t{1} << 40);
  EXPECT_THAT(ErrorOf(many_strings), HasSubstr("value of \"k\" count at offset 41"));
  GgufWriter many_tensors;
  many_tensors.Header(uint64_t{1} << 60, 0);
  EXPECT_THAT(ErrorOf(many_tensors), HasSubstr("n_tensors at offset 8"));
}

TEST(GgufTest, Mod01_HugeCounts_TakeNoMemory) {
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  GgufWriter many_strings;
  many_strings.Header(0, 1).Array("k", Type::kString, uint64_t{1} << 40);
  EXPECT_NE(ErrorOf(many_strings), "");
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 * 1024);
}

GgufWriter OneTensor(TensorType type, const std::vector<int64_t>& dims, uint64_t offset = 0) {
  GgufWriter w;
  w.Header(1, 0).Tensor("t", type, dims, offset).Align().Append(std::string(256, '\0'));
  return w;
}

TEST(GgufTest, Mod02_WrappingDims_AreErrors) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ErrorOf(OneTensor(TensorType::kF32, {4, 16})), "");
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kF32, {4, int64_t{1} << 62})), HasSubstr("tensor \"t\" dims"));
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kI8, {kMax, 2})), HasSubstr("past 2^63"));
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kI8, {-1, 4})), HasSubstr("-1 is not positive"));
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kI8, {0})), HasSubstr("0 is not positive"));
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kF32, {4, 17})), HasSubstr("do not fit"));
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kF32, {4}, ~uint64_t{31})), HasSubstr("do not fit"));
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kF32, {4}, 4)), HasSubstr("not aligned"));
  EXPECT_THAT(ErrorOf(OneTensor(TensorType::kQ4_1, {33})), HasSubstr("no multiple of Q4_1's 32"));
  EXPECT_THAT(ErrorOf(OneTensor(static_cast<TensorType>(999), {4})), HasSubstr("999 is not a supported"));
}

TEST(GgufTest, Mod02_ManyTensorsPastTheFile_AreErrors) {
  GgufWriter w;
  w.Header(300, 0);
  for (int i = 0; i < 300; ++i) {
    w.Tensor(std::string("t").append(std::to_string(i)), TensorType::kI8, {(int64_t{1} << 56)},
             static_cast<uint64_t>(i) << 56);
  }
  w.Align();
  EXPECT_THAT(ErrorOf(w), HasSubstr("tensor \"t0\" data"));
}

TEST(GgufTest, Mod05_EveryTruncation_IsACleanError) {
  const GgufWriter w = GoodFile();
  for (size_t size = 0; size < w.size(); ++size) {
    // A copy of exactly that size, so that a read past the end is seen by the address sanitizer.
    const auto copy = std::make_unique<std::byte[]>(size);
    std::memcpy(copy.get(), w.bytes().data(), size);
    const auto file = GgufFile::Parse({copy.get(), size}, "x.gguf");
    ASSERT_FALSE(file.ok()) << size;
    ASSERT_THAT(std::string(file.status().message()), HasSubstr("x.gguf: ")) << size;
  }
}

TEST(GgufTest, Mod05_EveryFlippedHeaderByte_LoadsOrFailsCleanly) {
  const GgufWriter w = GoodFile();
  std::string bytes(reinterpret_cast<const char*>(w.bytes().data()), w.size());
  int errors = 0;
  for (size_t i = 0; i < 400; ++i) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
      errors += GgufFile::Parse(std::as_bytes(std::span(bytes)), "x.gguf").ok() ? 0 : 1;
      bytes[i] = static_cast<char>(bytes[i] ^ flip);
    }
  }
  EXPECT_GT(errors, 300);
}

TEST(GgufTest, Repeats_AreErrors) {
  GgufWriter keys;
  keys.Header(0, 2).Key("k", Type::kUint8).Put<uint8_t>(1).Key("k", Type::kUint8).Put<uint8_t>(1);
  EXPECT_THAT(ErrorOf(keys), HasSubstr("\"k\" is there twice"));
  GgufWriter tensors;
  tensors.Header(2, 0).Tensor("t", TensorType::kF32, {1}, 0).Tensor("t", TensorType::kF32, {1}, 0);
  EXPECT_THAT(ErrorOf(tensors.Align().Append(std::string(64, '\0'))), HasSubstr("tensor \"t\""));
}

TEST(GgufTest, BadHeaderFields_AreErrors) {
  GgufWriter version;
  version.Header(0, 0, 1);
  EXPECT_THAT(ErrorOf(version), HasSubstr("version at offset 4: 1 is not 2 or 3"));
  GgufWriter big_endian;
  big_endian.Header(0, 0, 0x03000000);
  EXPECT_THAT(ErrorOf(big_endian), HasSubstr("big-endian"));
  GgufWriter alignment;
  alignment.Header(0, 1).Key("general.alignment", Type::kUint32).Put<uint32_t>(0);
  EXPECT_THAT(ErrorOf(alignment), HasSubstr("general.alignment"));
  GgufWriter type;
  type.Header(0, 1).PutString("k").Put<uint32_t>(77).Put<uint64_t>(0);
  EXPECT_THAT(ErrorOf(type), HasSubstr("type of \"k\" at offset 33: 77"));
}

TEST(GgufTest, NestedArrays_AreBounded) {
  GgufWriter w;
  w.Header(0, 1).Key("k", Type::kArray);
  for (int i = 0; i < 100; ++i) w.Put<uint32_t>(static_cast<uint32_t>(Type::kArray)).Put<uint64_t>(1);
  EXPECT_THAT(ErrorOf(w), HasSubstr("nest too deeply"));
}

TEST(GgufTest, OnePartOfSeveral_IsRefusedAsSuch) {
  GgufWriter w;
  w.Header(0, 1).Key("split.count", Type::kUint16).Put<uint16_t>(3);
  const auto file = GgufFile::Parse(w.bytes(), "m-00001-of-00003.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT(std::string(ReadModelConfig(*file).status().message()),
              HasSubstr("m-00001-of-00003.gguf: \"split.count\": is one of 3 files"));
}

TEST(GgufTest, Open_MissingFile_NamesIt) {
  EXPECT_THAT(std::string(GgufFile::Open("/nonexistent/m.gguf").status().message()),
              HasSubstr("/nonexistent/m.gguf"));
}

}  // namespace
}  // namespace kvring::replica
