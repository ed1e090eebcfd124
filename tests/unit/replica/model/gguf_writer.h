// GgufWriter: builds GGUF bytes for tests, good ones and, through the raw Put calls, bad ones.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "replica/model/gguf.h"

namespace kvring::replica {

class GgufWriter {
 public:
  template <class T>
  GgufWriter& Put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    bytes_.append(raw, sizeof(T));
    return *this;
  }
  GgufWriter& PutString(std::string_view text) {
    Put<uint64_t>(text.size());
    bytes_.append(text);
    return *this;
  }
  GgufWriter& Header(uint64_t n_tensors, uint64_t n_kv, uint32_t version = 3) {
    bytes_.append("GGUF");
    return Put<uint32_t>(version).Put<uint64_t>(n_tensors).Put<uint64_t>(n_kv);
  }
  GgufWriter& Key(std::string_view key, GgufValueType type) {
    return PutString(key).Put<uint32_t>(static_cast<uint32_t>(type));
  }
  GgufWriter& Array(std::string_view key, GgufValueType element, uint64_t count) {
    return Key(key, GgufValueType::kArray).Put<uint32_t>(static_cast<uint32_t>(element)).Put<uint64_t>(count);
  }
  GgufWriter& Tensor(std::string_view name, TensorType type, const std::vector<int64_t>& dims,
                     uint64_t offset) {
    PutString(name).Put<uint32_t>(static_cast<uint32_t>(dims.size()));
    for (const int64_t dim : dims) Put<int64_t>(dim);
    return Put<uint32_t>(static_cast<uint32_t>(type)).Put<uint64_t>(offset);
  }
  /// Pads to the alignment of the data section.
  GgufWriter& Align(size_t alignment = 32) {
    bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment, '\0');
    return *this;
  }
  GgufWriter& Append(std::string_view raw) {
    bytes_.append(raw);
    return *this;
  }
  size_t size() const { return bytes_.size(); }
  std::span<const std::byte> bytes() const { return std::as_bytes(std::span(bytes_)); }

 private:
  std::string bytes_;
};

}  // namespace kvring::replica
