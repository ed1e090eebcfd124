// The parsing half of GgufFile: bytes to a validated index of values and tensors.
#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/gguf.h"

namespace kvring::replica {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read in place, as little-endian");

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr size_t kMinKeyValueBytes = 8 + 4 + 1;
constexpr size_t kMinTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr uint32_t kMaxDims = 4;
constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = 1 << 20;

bool IsValueType(uint32_t number) { return number <= static_cast<uint32_t>(GgufValueType::kFloat64); }

// The least that one array element can take.
size_t MinElementBytes(GgufValueType type) {
  if (type == GgufValueType::kString) return 8;
  if (type == GgufValueType::kArray) return 4 + 8;
  return FixedBytes(type);
}

// Product, or nothing when it leaves int64.
std::optional<int64_t> Multiply(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

}  // namespace

size_t FixedBytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::kUint8:
    case GgufValueType::kInt8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kUint16:
    case GgufValueType::kInt16:
      return 2;
    case GgufValueType::kUint32:
    case GgufValueType::kInt32:
    case GgufValueType::kFloat32:
      return 4;
    case GgufValueType::kUint64:
    case GgufValueType::kInt64:
    case GgufValueType::kFloat64:
      return 8;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      return 0;
  }
  return 0;
}

std::optional<TensorTypeTraits> TraitsOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return TensorTypeTraits{"F32", 1, 4};
    case TensorType::kF16:
      return TensorTypeTraits{"F16", 1, 2};
    case TensorType::kQ4_0:
      return TensorTypeTraits{"Q4_0", 32, 18};
    case TensorType::kQ4_1:
      return TensorTypeTraits{"Q4_1", 32, 20};
    case TensorType::kQ5_0:
      return TensorTypeTraits{"Q5_0", 32, 22};
    case TensorType::kQ5_1:
      return TensorTypeTraits{"Q5_1", 32, 24};
    case TensorType::kQ8_0:
      return TensorTypeTraits{"Q8_0", 32, 34};
    case TensorType::kQ2_K:
      return TensorTypeTraits{"Q2_K", 256, 84};
    case TensorType::kQ3_K:
      return TensorTypeTraits{"Q3_K", 256, 110};
    case TensorType::kQ4_K:
      return TensorTypeTraits{"Q4_K", 256, 144};
    case TensorType::kQ5_K:
      return TensorTypeTraits{"Q5_K", 256, 176};
    case TensorType::kQ6_K:
      return TensorTypeTraits{"Q6_K", 256, 210};
    case TensorType::kI8:
      return TensorTypeTraits{"I8", 1, 1};
    case TensorType::kI16:
      return TensorTypeTraits{"I16", 1, 2};
    case TensorType::kI32:
      return TensorTypeTraits{"I32", 1, 4};
    case TensorType::kI64:
      return TensorTypeTraits{"I64", 1, 8};
    case TensorType::kF64:
      return TensorTypeTraits{"F64", 1, 8};
    case TensorType::kBF16:
      return TensorTypeTraits{"BF16", 1, 2};
  }
  return std::nullopt;
}

class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string name) {
    file_.bytes_ = bytes;
    file_.name_ = std::move(name);
  }

  absl::StatusOr<GgufFile> Run() {
    KVRING_RETURN_IF_ERROR(ReadHeader());
    for (uint64_t i = 0; i < n_kv_; ++i) KVRING_RETURN_IF_ERROR(ReadKeyValue(i));
    KVRING_RETURN_IF_ERROR(ReadAlignment());
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < n_tensors_; ++i) KVRING_RETURN_IF_ERROR(ReadTensor(i, offsets));
    KVRING_RETURN_IF_ERROR(PlaceTensors(offsets));
    return std::move(file_);
  }

 private:
  size_t remaining() const { return file_.bytes_.size() - offset_; }

  absl::Status Error(std::string_view field, size_t offset, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.name_, ": ", std::string(field), " at offset ", offset, ": ", what));
  }

  template <class T>
  absl::StatusOr<T> Read(std::string_view field) {
    if (remaining() < sizeof(T)) {
      return Error(field, offset_, absl::StrCat("needs ", sizeof(T), " bytes, ", remaining(), " remain"));
    }
    T value;
    std::memcpy(&value, file_.bytes_.data() + offset_, sizeof(T));
    offset_ += sizeof(T);
    return value;
  }

  absl::StatusOr<std::string_view> ReadString(std::string_view field) {
    const size_t at = offset_;
    KVRING_ASSIGN_OR_RETURN(const uint64_t length, Read<uint64_t>(field));
    if (length > remaining()) {
      return Error(field, at,
                   absl::StrCat("length ", length, " is past the ", remaining(), " bytes that remain"));
    }
    const std::string_view text(reinterpret_cast<const char*>(file_.bytes_.data()) + offset_, length);
    offset_ += length;
    return text;
  }

  absl::StatusOr<uint64_t> ReadCount(std::string_view field, size_t min_entry_bytes) {
    const size_t at = offset_;
    KVRING_ASSIGN_OR_RETURN(const uint64_t count, Read<uint64_t>(field));
    if (count > remaining() / min_entry_bytes) {
      return Error(field, at,
                   absl::StrCat(count, " entries do not fit in the ", remaining(), " bytes that remain"));
    }
    return count;
  }

  absl::Status ReadHeader() {
    KVRING_ASSIGN_OR_RETURN(const uint32_t magic, Read<uint32_t>("magic"));
    if (magic != kMagic) return Error("magic", 0, "not a GGUF file");
    KVRING_ASSIGN_OR_RETURN(const uint32_t version, Read<uint32_t>("version"));
    if (version != 2 && version != 3) {
      const bool swapped = __builtin_bswap32(version) <= 3;
      return Error("version", 4,
                   swapped ? "big-endian files are not supported" : absl::StrCat(version, " is not 2 or 3"));
    }
    // Counts are held against the whole rest of the file here, and against what really follows entry by
    // entry.
    KVRING_ASSIGN_OR_RETURN(n_tensors_, ReadCount("n_tensors", kMinTensorBytes));
    KVRING_ASSIGN_OR_RETURN(n_kv_, ReadCount("n_kv", kMinKeyValueBytes));
    return absl::OkStatus();
  }

  absl::StatusOr<GgufValueType> ReadType(const std::string& field) {
    const size_t at = offset_;
    KVRING_ASSIGN_OR_RETURN(const uint32_t number, Read<uint32_t>(field));
    if (!IsValueType(number)) return Error(field, at, absl::StrCat(number, " is no value type"));
    return static_cast<GgufValueType>(number);
  }

  absl::Status SkipArray(const std::string& field, GgufFile::Value& value, int depth) {
    const size_t at = offset_;
    if (depth > kMaxArrayDepth) return Error(field, at, "arrays nest too deeply");
    KVRING_ASSIGN_OR_RETURN(value.element, ReadType(absl::StrCat(field, " element type")));
    KVRING_ASSIGN_OR_RETURN(value.count,
                            ReadCount(absl::StrCat(field, " count"), MinElementBytes(value.element)));
    value.offset = offset_;
    if (const size_t bytes = FixedBytes(value.element); bytes > 0) {
      offset_ += bytes * value.count;
      return absl::OkStatus();
    }
    for (uint64_t i = 0; i < value.count; ++i) {
      if (value.element == GgufValueType::kString) {
        KVRING_RETURN_IF_ERROR(ReadString(field).status());
      } else {
        GgufFile::Value inner{};
        KVRING_RETURN_IF_ERROR(SkipArray(field, inner, depth + 1));
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadKeyValue(uint64_t i) {
    const size_t at = offset_;
    KVRING_ASSIGN_OR_RETURN(const std::string_view key, ReadString(absl::StrCat("key ", i)));
    const std::string field = absl::StrCat("value of \"", std::string(key), "\"");
    GgufFile::Value value{};
    KVRING_ASSIGN_OR_RETURN(value.type, ReadType(absl::StrCat("type of \"", std::string(key), "\"")));
    value.offset = offset_;
    if (value.type == GgufValueType::kArray) {
      KVRING_RETURN_IF_ERROR(SkipArray(field, value, 1));
    } else if (value.type == GgufValueType::kString) {
      KVRING_RETURN_IF_ERROR(ReadString(field).status());
    } else {
      const size_t bytes = FixedBytes(value.type);
      if (remaining() < bytes) return Error(field, offset_, absl::StrCat("needs ", bytes, " bytes"));
      offset_ += bytes;
    }
    if (!file_.values_.emplace(key, value).second) {
      return Error(absl::StrCat("key ", i), at, absl::StrCat("\"", std::string(key), "\" is there twice"));
    }
    return absl::OkStatus();
  }

  absl::Status ReadAlignment() {
    alignment_ = kDefaultAlignment;
    if (!file_.Has("general.alignment")) return absl::OkStatus();
    KVRING_ASSIGN_OR_RETURN(alignment_, file_.GetUint("general.alignment"));
    if (!std::has_single_bit(alignment_) || alignment_ > kMaxAlignment) {
      return Error("general.alignment", file_.values_.at("general.alignment").offset,
                   absl::StrCat(alignment_, " is not a power of two up to ", kMaxAlignment));
    }
    return absl::OkStatus();
  }

  absl::Status ReadDims(const std::string& field, GgufTensor& tensor) {
    const size_t at = offset_;
    KVRING_ASSIGN_OR_RETURN(const uint32_t n_dims, Read<uint32_t>(absl::StrCat(field, " n_dims")));
    if (n_dims < 1 || n_dims > kMaxDims) {
      return Error(absl::StrCat(field, " n_dims"), at, absl::StrCat(n_dims, " is not 1 to ", kMaxDims));
    }
    for (uint32_t i = 0; i < n_dims; ++i) {
      KVRING_ASSIGN_OR_RETURN(const int64_t dim, Read<int64_t>(absl::StrCat(field, " dims")));
      if (dim < 1)
        return Error(absl::StrCat(field, " dims"), offset_ - 8, absl::StrCat(dim, " is not positive"));
      tensor.dims.push_back(dim);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTensor(uint64_t i, std::vector<uint64_t>& offsets) {
    const size_t at = offset_;
    GgufTensor tensor;
    KVRING_ASSIGN_OR_RETURN(tensor.name, ReadString(absl::StrCat("name of tensor ", i)));
    const std::string field = absl::StrCat("tensor \"", std::string(tensor.name), "\"");
    KVRING_RETURN_IF_ERROR(ReadDims(field, tensor));
    const size_t type_at = offset_;
    KVRING_ASSIGN_OR_RETURN(const uint32_t type, Read<uint32_t>(absl::StrCat(field, " type")));
    tensor.type = static_cast<TensorType>(type);
    if (!TraitsOf(tensor.type)) {
      return Error(absl::StrCat(field, " type"), type_at,
                   absl::StrCat(type, " is not a supported tensor type"));
    }
    KVRING_ASSIGN_OR_RETURN(const uint64_t offset, Read<uint64_t>(absl::StrCat(field, " offset")));
    offsets.push_back(offset);
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      return Error(field, at, "is there twice");
    }
    file_.tensors_.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Bytes of the tensor's data, checked against every overflow.
  absl::StatusOr<int64_t> TensorBytes(const std::string& field, const GgufTensor& tensor) const {
    const TensorTypeTraits traits = *TraitsOf(tensor.type);
    if (tensor.dims[0] % traits.elements != 0) {
      return Error(absl::StrCat(field, " dims"), offset_,
                   absl::StrCat(tensor.dims[0], " is no multiple of ", traits.name, "'s ", traits.elements));
    }
    std::optional<int64_t> bytes = Multiply(tensor.dims[0] / traits.elements, traits.bytes);
    for (size_t i = 1; bytes && i < tensor.dims.size(); ++i) bytes = Multiply(*bytes, tensor.dims[i]);
    if (!bytes) return Error(absl::StrCat(field, " dims"), offset_, "their product is past 2^63");
    return *bytes;
  }

  absl::Status PlaceTensors(const std::vector<uint64_t>& offsets) {
    const size_t start = (offset_ + alignment_ - 1) / alignment_ * alignment_;
    const size_t data_bytes = start < file_.bytes_.size() ? file_.bytes_.size() - start : 0;
    for (size_t i = 0; i < offsets.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      const std::string field = absl::StrCat("tensor \"", std::string(tensor.name), "\"");
      KVRING_ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(field, tensor));
      if (offsets[i] % alignment_ != 0) {
        return Error(absl::StrCat(field, " offset"), start,
                     absl::StrCat(offsets[i], " is not aligned to ", alignment_));
      }
      if (offsets[i] > data_bytes || static_cast<uint64_t>(bytes) > data_bytes - offsets[i]) {
        return Error(
            absl::StrCat(field, " data"), start,
            absl::StrCat(bytes, " bytes at ", offsets[i], " do not fit in the ", data_bytes, " of the file"));
      }
      tensor.data = file_.bytes_.subspan(start + offsets[i], static_cast<size_t>(bytes));
    }
    return absl::OkStatus();
  }

  GgufFile file_;
  size_t offset_ = 0;
  uint64_t n_tensors_ = 0;
  uint64_t n_kv_ = 0;
  uint64_t alignment_ = kDefaultAlignment;
};

absl::StatusOr<GgufFile> GgufFile::Open(const std::string& path) {
  KVRING_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  KVRING_ASSIGN_OR_RETURN(GgufFile file, Parse(mapping.bytes(), path));
  file.mapping_ = std::move(mapping);
  return file;
}

absl::StatusOr<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, std::string name) {
  return GgufParser(bytes, std::move(name)).Run();
}

}  // namespace kvring::replica
