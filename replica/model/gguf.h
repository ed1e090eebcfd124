// GgufFile: a validated, read-only view of a GGUF model file, versions 2 and 3, little-endian. Open checks
// all of it with overflow-safe arithmetic before any view exists: counts and lengths against the bytes that
// remain, tensor extents against the file, names against repetition. Memory used beyond the mapping is
// proportional to the entries really present. Layout: magic "GGUF" u32 | version u32 | n_tensors u64 | n_kv
// u64 | n_kv x (key, type u32, value) | n_tensors x (name, n_dims u32, dims u64…, type u32, offset u64) |
// padding | tensor data. A string is u64 length + bytes. Errors are InvalidArgument "<file>: <field> at
// offset <n>: <what>". Immutable, so safe from many threads; string views and tensor spans live as long as
// the GgufFile (moves keep them valid).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/runtime/files.h"

namespace kvring::replica {

/// Types of metadata values, with the numbers of the format.
enum class GgufValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
/// Of a value of fixed size; 0 for strings and arrays.
size_t FixedBytes(GgufValueType type);

/// Element types of tensors, with the numbers of the format. Others of the format are load errors that name
/// the number.
enum class TensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
};

/// How a tensor type packs elements: `bytes` hold `elements` of one row.
struct TensorTypeTraits {
  const char* name;
  int32_t elements;
  int32_t bytes;
};
/// Nothing for a number that is no type of ours.
std::optional<TensorTypeTraits> TraitsOf(TensorType type);

struct GgufTensor {
  std::string_view name;
  TensorType type;
  std::vector<int64_t>
      dims;  // 1 to 4, the innermost (contiguous) first: a matrix of n rows of k elements is {k, n}
  std::span<const std::byte> data;
  /// Never in GGUF: the matrix is stored column by column (GPT-2's in safetensors), F32, F16 or BF16.
  bool transposed = false;

  int64_t dim(size_t i) const { return i < dims.size() ? dims[i] : 1; }
};

class GgufFile {
 public:
  /// Maps and validates the file.
  static absl::StatusOr<GgufFile> Open(const std::string& path);
  /// Validates bytes that the caller keeps alive; `name` stands for the file in errors.
  static absl::StatusOr<GgufFile> Parse(std::span<const std::byte> bytes, std::string name);

  /// Whether the key exists, of any type.
  bool Has(std::string_view key) const { return values_.contains(key); }
  /// Typed getters. NotFound names a missing key, InvalidArgument a value of another type or out of range.
  /// Integers of every width are converted where the value fits; floats take f32 and f64.
  absl::StatusOr<std::string_view> GetString(std::string_view key) const;
  absl::StatusOr<uint64_t> GetUint(std::string_view key) const;
  absl::StatusOr<int64_t> GetInt(std::string_view key) const;
  absl::StatusOr<double> GetFloat(std::string_view key) const;
  absl::StatusOr<bool> GetBool(std::string_view key) const;
  /// Arrays, decoded at each call: ask once and keep the answer.
  absl::StatusOr<std::vector<std::string_view>> GetStringArray(std::string_view key) const;
  absl::StatusOr<std::vector<int64_t>> GetIntArray(std::string_view key) const;
  absl::StatusOr<std::vector<float>> GetFloatArray(std::string_view key) const;

  /// All keys, in order of their bytes.
  std::vector<std::string_view> Keys() const;

  const std::vector<GgufTensor>& tensors() const { return tensors_; }
  /// Null when the file has no such tensor.
  const GgufTensor* FindTensor(std::string_view name) const;
  /// The file's name for error messages.
  const std::string& name() const { return name_; }

 private:
  friend class GgufParser;
  struct Value {
    GgufValueType type;
    GgufValueType element;  // of an array
    uint64_t count;         // of an array
    size_t offset;          // of the value's first byte (an array's first element) in the file
  };

  absl::StatusOr<const Value*> FindValue(std::string_view key) const;
  absl::StatusOr<const Value*> FindArray(std::string_view key, std::string_view wanted) const;
  absl::Status WrongType(std::string_view key, const Value& value, std::string_view wanted) const;

  std::string name_;
  std::optional<MappedFile> mapping_;
  std::span<const std::byte> bytes_;
  std::map<std::string_view, Value> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string_view, size_t> tensor_index_;
};

}  // namespace kvring::replica
