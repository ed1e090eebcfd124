#include "replica/model/safetensors.h"

#include <simdjson.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

namespace json = simdjson::ondemand;

constexpr uint64_t kMaxHeaderBytes = 100 << 20;
constexpr size_t kMaxDims = 8;

int64_t BytesOf(std::string_view dtype) {
  static constexpr std::pair<std::string_view, int64_t> kTypes[] = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return 0;
}

struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::string name;
};

class HeaderParser {
 public:
  HeaderParser(std::string file, std::span<const std::byte> data) : file_(std::move(file)), data_(data) {}

  absl::Status Parse(std::string_view text) {
    const simdjson::padded_string padded(text);
    json::parser parser;
    json::document document;
    if (parser.iterate(padded).get(document) != simdjson::SUCCESS) return NotJson();
    KVRING_RETURN_IF_ERROR(ParseEntries(document));
    // There is a place to be at only where something follows the object.
    const char* rest = nullptr;
    if (document.current_location().get(rest) != simdjson::OUT_OF_BOUNDS) return NotJson();
    return CheckCover();
  }

  std::map<std::string, SafetensorsTensor, std::less<>> Take() && { return std::move(tensors_); }

 private:
  absl::Status NotJson() const {
    return absl::InvalidArgumentError(absl::StrCat(file_, ": the header is not a JSON object of tensors"));
  }
  absl::Status Bad(std::string_view tensor, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(file_, ": tensor \"", std::string(tensor.substr(0, 200)), "\": ", what));
  }

  absl::Status ParseEntries(json::document& document) {
    json::object entries;
    if (document.get_object().get(entries) != simdjson::SUCCESS) return NotJson();
    bool has_metadata = false;
    for (auto field : entries) {
      std::string_view key;
      if (field.unescaped_key().get(key) != simdjson::SUCCESS) return NotJson();
      const std::string name(key);
      json::value value;
      if (field.value().get(value) != simdjson::SUCCESS) return NotJson();
      if (name != "__metadata__") {
        KVRING_RETURN_IF_ERROR(ParseTensor(name, value));
      } else if (std::exchange(has_metadata, true)) {
        return Bad(name, "is there twice");
      } else {
        KVRING_RETURN_IF_ERROR(CheckMetadata(value));
      }
    }
    return absl::OkStatus();
  }

  // Strings only.
  absl::Status CheckMetadata(json::value value) const {
    json::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) return Bad("__metadata__", "is no object");
    for (auto field : object) {
      std::string_view text;
      if (field.unescaped_key().get(text) != simdjson::SUCCESS) return NotJson();
      json::value entry;
      if (field.value().get(entry) != simdjson::SUCCESS ||
          entry.get_string().get(text) != simdjson::SUCCESS) {
        return Bad("__metadata__", "has a value that is no string");
      }
    }
    return absl::OkStatus();
  }

  absl::Status ParseTensor(const std::string& name, json::value value) {
    SafetensorsTensor tensor;
    std::vector<int64_t> offsets;
    json::object object;
    if (value.get_object().get(object) != simdjson::SUCCESS) return Bad(name, "is no object");
    int fields = 0;
    for (auto field : object) {
      std::string_view key_text;
      json::value entry;
      if (field.unescaped_key().get(key_text) != simdjson::SUCCESS) return NotJson();
      const std::string key(key_text);
      if (field.value().get(entry) != simdjson::SUCCESS) return NotJson();
      ++fields;
      if (key == "dtype" && tensor.dtype.empty()) {
        std::string_view text;
        if (entry.get_string().get(text) != simdjson::SUCCESS) return Bad(name, "dtype is no string");
        tensor.dtype = std::string(text.substr(0, 32));
      } else if (key == "shape" && tensor.shape.empty()) {
        KVRING_RETURN_IF_ERROR(ReadNumbers(name, "shape", kMaxDims, entry, tensor.shape));
      } else if (key == "data_offsets" && offsets.empty()) {
        KVRING_RETURN_IF_ERROR(ReadNumbers(name, "data_offsets", 2, entry, offsets));
      } else {
        return Bad(name, absl::StrCat("unexpected field \"", key.substr(0, 100), "\""));
      }
    }
    if (fields != 3 || offsets.size() != 2) return Bad(name, "lacks dtype, shape or data_offsets");
    return AddTensor(name, std::move(tensor),
                     {static_cast<uint64_t>(offsets[0]), static_cast<uint64_t>(offsets[1]), name});
  }

  absl::Status ReadNumbers(const std::string& name, const char* field, size_t most, json::value value,
                           std::vector<int64_t>& out) const {
    json::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS)
      return Bad(name, absl::StrCat(field, " is no array"));
    for (auto element : array) {
      int64_t number = 0;
      if (element.get_int64().get(number) != simdjson::SUCCESS || number < 0) {
        return Bad(name, absl::StrCat(field, " has an element that is no number from 0 to 2^63 - 1"));
      }
      if (out.size() == most) return Bad(name, absl::StrCat(field, " has more than ", most, " elements"));
      out.push_back(number);
    }
    return absl::OkStatus();
  }

  absl::Status AddTensor(const std::string& name, SafetensorsTensor tensor, Extent extent) {
    int64_t bytes = BytesOf(tensor.dtype);
    if (bytes == 0) return Bad(name, absl::StrCat("dtype \"", tensor.dtype, "\" is unknown"));
    for (const int64_t dim : tensor.shape) {
      if (__builtin_mul_overflow(bytes, dim, &bytes)) return Bad(name, "shape is past 2^63 bytes");
    }
    if (extent.end < extent.begin || extent.end > data_.size()) {
      return Bad(name, absl::StrCat("data_offsets [", extent.begin, ", ", extent.end, "] do not lie in the ",
                                    data_.size(), " bytes of data"));
    }
    if (extent.end - extent.begin != static_cast<uint64_t>(bytes)) {
      return Bad(name, absl::StrCat("has ", extent.end - extent.begin, " bytes, its shape says ", bytes));
    }
    tensor.data = data_.subspan(extent.begin, extent.end - extent.begin);
    if (!tensors_.emplace(name, std::move(tensor)).second) return Bad(name, "is there twice");
    extents_.push_back(std::move(extent));
    return absl::OkStatus();
  }

  absl::Status CheckCover() {
    std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    uint64_t at = 0;
    for (const Extent& extent : extents_) {
      if (extent.begin < at) return Bad(extent.name, absl::StrCat("overlaps the bytes before ", at));
      if (extent.begin > at)
        return Bad(extent.name, absl::StrCat("leaves a hole at ", at, " to ", extent.begin));
      at = extent.end;
    }
    if (at == data_.size()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(file_, ": ", data_.size() - at, " bytes after the last tensor belong to none"));
  }

  std::string file_;
  std::span<const std::byte> data_;
  std::map<std::string, SafetensorsTensor, std::less<>> tensors_;
  std::vector<Extent> extents_;
};

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  KVRING_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  KVRING_ASSIGN_OR_RETURN(SafetensorsFile file, Parse(mapping.bytes(), path));
  file.mapping_ = std::move(mapping);
  return file;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Parse(std::span<const std::byte> bytes, std::string name) {
  uint64_t length = 0;
  if (bytes.size() < sizeof(length)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": header length at offset 0: the file ends before it"));
  }
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > bytes.size() - sizeof(length) || length > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": header length at offset 0: ", length,
                                                   " is past the ", bytes.size() - sizeof(length),
                                                   " bytes that follow or ", kMaxHeaderBytes));
  }
  SafetensorsFile file;
  HeaderParser parser(name, bytes.subspan(sizeof(length) + length));
  KVRING_RETURN_IF_ERROR(parser.Parse(
      {reinterpret_cast<const char*>(bytes.data()) + sizeof(length), static_cast<size_t>(length)}));
  file.name_ = std::move(name);
  file.tensors_ = std::move(parser).Take();
  return file;
}

}  // namespace kvring::replica
