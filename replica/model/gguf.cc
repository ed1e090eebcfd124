#include "replica/model/gguf.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

bool IsInteger(GgufValueType type) {
  const bool other =
      type == GgufValueType::kBool || type == GgufValueType::kFloat32 || type == GgufValueType::kFloat64;
  return !other && FixedBytes(type) > 0;
}

// An integer of any width; nothing for a u64 past int64.
std::optional<int64_t> LoadInteger(GgufValueType type, const std::byte* at) {
  switch (type) {
    case GgufValueType::kUint8:
      return Load<uint8_t>(at);
    case GgufValueType::kInt8:
      return Load<int8_t>(at);
    case GgufValueType::kUint16:
      return Load<uint16_t>(at);
    case GgufValueType::kInt16:
      return Load<int16_t>(at);
    case GgufValueType::kUint32:
      return Load<uint32_t>(at);
    case GgufValueType::kInt32:
      return Load<int32_t>(at);
    case GgufValueType::kInt64:
      return Load<int64_t>(at);
    case GgufValueType::kUint64: {
      const uint64_t value = Load<uint64_t>(at);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::string_view LoadString(const std::byte* at) {
  return {reinterpret_cast<const char*>(at) + 8, static_cast<size_t>(Load<uint64_t>(at))};
}

const char* TypeName(GgufValueType type) {
  constexpr const char* kNames[] = {"uint8", "int8",   "uint16", "int16",  "uint32", "int32",  "float32",
                                    "bool",  "string", "array",  "uint64", "int64",  "float64"};
  return kNames[static_cast<uint32_t>(type)];
}

}  // namespace

absl::Status GgufFile::WrongType(std::string_view key, const Value& value, std::string_view wanted) const {
  const std::string found = value.type == GgufValueType::kArray
                                ? absl::StrCat("array of ", TypeName(value.element))
                                : std::string(TypeName(value.type));
  return absl::InvalidArgumentError(absl::StrCat(name_, ": \"", std::string(key), "\" at offset ",
                                                 value.offset, ": is ", found, ", not ",
                                                 std::string(wanted)));
}

absl::StatusOr<const GgufFile::Value*> GgufFile::FindValue(std::string_view key) const {
  const auto it = values_.find(key);
  if (it == values_.end()) {
    return absl::NotFoundError(absl::StrCat(name_, ": key \"", std::string(key), "\" is missing"));
  }
  return &it->second;
}

absl::StatusOr<const GgufFile::Value*> GgufFile::FindArray(std::string_view key,
                                                           std::string_view wanted) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindValue(key));
  if (value->type != GgufValueType::kArray) return WrongType(key, *value, wanted);
  return value;
}

absl::StatusOr<std::string_view> GgufFile::GetString(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindValue(key));
  if (value->type != GgufValueType::kString) return WrongType(key, *value, "a string");
  return LoadString(bytes_.data() + value->offset);
}

absl::StatusOr<int64_t> GgufFile::GetInt(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindValue(key));
  const std::optional<int64_t> number = LoadInteger(value->type, bytes_.data() + value->offset);
  if (!number) return WrongType(key, *value, "an integer within int64");
  return *number;
}

absl::StatusOr<uint64_t> GgufFile::GetUint(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindValue(key));
  if (value->type == GgufValueType::kUint64) return Load<uint64_t>(bytes_.data() + value->offset);
  const std::optional<int64_t> number = LoadInteger(value->type, bytes_.data() + value->offset);
  if (!number || *number < 0) return WrongType(key, *value, "a non-negative integer");
  return static_cast<uint64_t>(*number);
}

absl::StatusOr<double> GgufFile::GetFloat(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindValue(key));
  const std::byte* at = bytes_.data() + value->offset;
  if (value->type == GgufValueType::kFloat32) return static_cast<double>(Load<float>(at));
  if (value->type == GgufValueType::kFloat64) return Load<double>(at);
  return WrongType(key, *value, "a float");
}

absl::StatusOr<bool> GgufFile::GetBool(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindValue(key));
  if (value->type != GgufValueType::kBool) return WrongType(key, *value, "a bool");
  return Load<uint8_t>(bytes_.data() + value->offset) != 0;
}

absl::StatusOr<std::vector<std::string_view>> GgufFile::GetStringArray(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindArray(key, "an array of strings"));
  if (value->element != GgufValueType::kString) return WrongType(key, *value, "an array of strings");
  std::vector<std::string_view> strings;
  strings.reserve(value->count);
  size_t offset = value->offset;
  for (uint64_t i = 0; i < value->count; ++i) {
    strings.push_back(LoadString(bytes_.data() + offset));
    offset += 8 + strings.back().size();
  }
  return strings;
}

absl::StatusOr<std::vector<int64_t>> GgufFile::GetIntArray(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindArray(key, "an array of integers"));
  const size_t width = FixedBytes(value->element);
  if (!IsInteger(value->element)) return WrongType(key, *value, "an array of integers");
  std::vector<int64_t> numbers;
  numbers.reserve(value->count);
  for (uint64_t i = 0; i < value->count; ++i) {
    const std::optional<int64_t> number =
        LoadInteger(value->element, bytes_.data() + value->offset + i * width);
    if (!number) return WrongType(key, *value, "an array of integers within int64");
    numbers.push_back(*number);
  }
  return numbers;
}

absl::StatusOr<std::vector<float>> GgufFile::GetFloatArray(std::string_view key) const {
  KVRING_ASSIGN_OR_RETURN(const Value* value, FindArray(key, "an array of floats"));
  const bool is_double = value->element == GgufValueType::kFloat64;
  if (!is_double && value->element != GgufValueType::kFloat32)
    return WrongType(key, *value, "an array of floats");
  std::vector<float> numbers;
  numbers.reserve(value->count);
  const std::byte* first = bytes_.data() + value->offset;
  for (uint64_t i = 0; i < value->count; ++i) {
    numbers.push_back(is_double ? static_cast<float>(Load<double>(first + i * 8))
                                : Load<float>(first + i * 4));
  }
  return numbers;
}

std::vector<std::string_view> GgufFile::Keys() const {
  std::vector<std::string_view> keys;
  keys.reserve(values_.size());
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace kvring::replica
