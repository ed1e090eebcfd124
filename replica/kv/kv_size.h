// The size of a KV cache on paper: 2 (K and V) x layers x kv_heads x head_dim x tokens x batch x bytes of an
// element, and where elements are scaled, the bytes of a scale per key and value of a head. Under a sliding
// window a sequence holds min(tokens, window). Exact; `kvring lab measured` compares it with what is really
// held. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvring::replica {

struct KvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t element_bytes = 2;  // f16 and bf16: 2, f32: 4, int8: 1
  int64_t scale_bytes = 0;    // per key and per value of one head: 4 in our int8 pools
  int64_t window = 0;         // tokens kept per sequence; 0: all
};

/// What our replicas can hold keys and values in.
inline std::vector<std::string> KvTypeNames() { return {"f32", "f16", "bf16", "int8"}; }

/// One of KvTypeNames, as our replicas hold keys and values: int8 with a f32 scale per key and
/// value of a head.
constexpr void SetKvType(std::string_view type, KvShape& shape) {
  shape.element_bytes = type == "f32" ? 4 : type == "int8" ? 1 : 2;
  shape.scale_bytes = type == "int8" ? 4 : 0;
}

constexpr int64_t KvBytesPerToken(const KvShape& shape) {
  return 2 * shape.layers * shape.kv_heads * (shape.head_dim * shape.element_bytes + shape.scale_bytes);
}

constexpr int64_t KvBytes(const KvShape& shape, int64_t tokens, int64_t batch) {
  return KvBytesPerToken(shape) * (shape.window > 0 ? std::min(tokens, shape.window) : tokens) * batch;
}

}  // namespace kvring::replica
