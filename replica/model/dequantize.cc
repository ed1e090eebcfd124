#include "replica/model/dequantize.h"

#include <cstring>

#include "common/check.h"
#include "kernels/half.h"

namespace kvring::replica {
namespace {

using kernels::Bf16ToFloat;
using kernels::F16Bits;
using kernels::F16ToFloat;

uint16_t Load16(const std::byte* at) {
  uint16_t value;
  std::memcpy(&value, at, 2);
  return value;
}

int Byte(const std::byte* at) { return static_cast<int>(*at); }
int SignedByte(const std::byte* at) { return static_cast<int8_t>(*at); }

// Each decodes one block of its type.
void BlockF32(const std::byte* in, float* out) { std::memcpy(out, in, 4); }
void BlockF16(const std::byte* in, float* out) { *out = F16ToFloat(Load16(in)); }
void BlockBf16(const std::byte* in, float* out) { *out = Bf16ToFloat(Load16(in)); }

void BlockQ4_0(const std::byte* in, float* out) {
  const float d = F16ToFloat(Load16(in));
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>((Byte(in + 2 + i) & 15) - 8);
    out[i + 16] = d * static_cast<float>((Byte(in + 2 + i) >> 4) - 8);
  }
}

void BlockQ4_1(const std::byte* in, float* out) {
  const float d = F16ToFloat(Load16(in));
  const float m = F16ToFloat(Load16(in + 2));
  for (int i = 0; i < 16; ++i) {
    out[i] = d * static_cast<float>(Byte(in + 4 + i) & 15) + m;
    out[i + 16] = d * static_cast<float>(Byte(in + 4 + i) >> 4) + m;
  }
}

void BlockQ8_0(const std::byte* in, float* out) {
  const float d = F16ToFloat(Load16(in));
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(SignedByte(in + 2 + i));
}

struct ScaleAndMin {
  int scale;
  int min;
};

// Q4_K keeps eight pairs of 6-bit numbers in 12 bytes: the low four pairs plainly, the upper bits of the
// others above them.
ScaleAndMin PairOfQ4_K(const std::byte* s, int j) {
  if (j < 4) return {Byte(s + j) & 63, Byte(s + j + 4) & 63};
  return {(Byte(s + j + 4) & 15) | (Byte(s + j - 4) >> 6 << 4),
          (Byte(s + j + 4) >> 4) | (Byte(s + j) >> 6 << 4)};
}

// d f16 | dmin f16 | scales 12 | 4 x 32 bytes: low nibbles are sub-block 2i, high ones 2i + 1.
void BlockQ4_K(const std::byte* in, float* out) {
  const float d = F16ToFloat(Load16(in));
  const float min_scale = F16ToFloat(Load16(in + 2));
  for (int j = 0; j < 8; ++j) {
    const ScaleAndMin pair = PairOfQ4_K(in + 4, j);
    const std::byte* q = in + 16 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int nibble = j % 2 == 0 ? Byte(q + i) & 15 : Byte(q + i) >> 4;
      out[j * 32 + i] = d * static_cast<float>(pair.scale) * static_cast<float>(nibble) -
                        min_scale * static_cast<float>(pair.min);
    }
  }
}

// low nibbles 128 | high pairs 64 | 16 int8 scales, one per 16 elements | d f16. Per half of 128: quarter k
// of 32 elements.
void BlockQ6_K(const std::byte* in, float* out) {
  const float d = F16ToFloat(Load16(in + 208));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const int at = i % 32;
    const int low_byte = Byte(in + half * 64 + quarter % 2 * 32 + at);
    const int low = quarter < 2 ? low_byte & 15 : low_byte >> 4;
    const int high = (Byte(in + 128 + half * 32 + at) >> (2 * quarter)) & 3;
    const int scale = SignedByte(in + 192 + i / 16);
    out[i] = d * static_cast<float>(scale) * static_cast<float>((low | (high << 4)) - 32);
  }
}

using BlockDecoder = void (*)(const std::byte*, float*);
BlockDecoder DecoderOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return BlockF32;
    case TensorType::kF16:
      return BlockF16;
    case TensorType::kBF16:
      return BlockBf16;
    case TensorType::kQ4_0:
      return BlockQ4_0;
    case TensorType::kQ4_1:
      return BlockQ4_1;
    case TensorType::kQ8_0:
      return BlockQ8_0;
    case TensorType::kQ4_K:
      return BlockQ4_K;
    case TensorType::kQ6_K:
      return BlockQ6_K;
    default:
      return nullptr;
  }
}

}  // namespace

bool CanDequantize(TensorType type) { return DecoderOf(type) != nullptr; }

int64_t RowBytes(const GgufTensor& tensor) {
  const TensorTypeTraits traits = *TraitsOf(tensor.type);
  return tensor.dims[0] / traits.elements * traits.bytes;
}

void DequantizeRow(const GgufTensor& tensor, int64_t row, std::span<float> out) {
  const BlockDecoder decode = DecoderOf(tensor.type);
  KVRING_CHECK(decode != nullptr && static_cast<int64_t>(out.size()) == tensor.dims[0]);
  const TensorTypeTraits traits = *TraitsOf(tensor.type);
  if (tensor.transposed) {
    KVRING_CHECK(traits.elements == 1);
    const std::byte* column = tensor.data.data() + row * traits.bytes;
    for (float& value : out) {
      decode(column, &value);
      column += tensor.dims[1] * traits.bytes;
    }
    return;
  }
  const std::byte* in = tensor.data.data() + row * RowBytes(tensor);
  for (size_t i = 0; i < out.size(); i += static_cast<size_t>(traits.elements), in += traits.bytes) {
    decode(in, out.data() + i);
  }
}

void ReadU4Row(const GgufTensor& tensor, int64_t row, std::span<kernels::U4Block> out) {
  const bool has_min = tensor.type == TensorType::kQ4_1;
  const std::byte* in = tensor.data.data() + row * RowBytes(tensor);
  for (kernels::U4Block& block : out) {
    block.d = Load16(in);
    block.m = has_min ? Load16(in + 2) : kernels::FloatToF16(-8.0F * F16ToFloat(block.d));
    in += has_min ? 4 : 2;
    for (int i = 0; i < 16; ++i, ++in) {
      block.q[static_cast<size_t>(i)] = static_cast<uint8_t>(Byte(in) & 15);
      block.q[static_cast<size_t>(i) + 16] = static_cast<uint8_t>(Byte(in) >> 4);
    }
  }
}

void ReadU8Row(const GgufTensor& tensor, int64_t row, std::span<kernels::U8Block> out) {
  const std::byte* in = tensor.data.data() + row * RowBytes(tensor);
  for (kernels::U8Block& block : out) {
    block.d = Load16(in);
    std::memcpy(block.q.data(), in + 2, 32);
    in += 34;
  }
}

}  // namespace kvring::replica
