// 16-bit floats as their bits: f16 (IEEE binary16) and bf16, converted with round to nearest even. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace kvring::kernels {

using F16Bits = uint16_t;
using Bf16Bits = uint16_t;

inline float F16ToFloat(F16Bits bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7fffU;
  // Placed in a float's fields the exponent is 112 too small; the multiplication by 2^112 repairs that,
  // subnormals too.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1.0p112F;
  const uint32_t infinite = magnitude >= 0x7c00U ? 0x7f800000U : 0U;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | infinite | sign);
}

inline F16Bits FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return sign | 0x7e00U;   // NaN
  if (magnitude >= 0x477ff000U) return sign | 0x7c00U;  // rounds past 65504
  if (magnitude < 0x38800000U) {                        // subnormal: the sum's own rounding does the work
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0.5F));
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return sign | static_cast<uint16_t>((rounded - 0x38000000U) >> 13);
}

inline float Bf16ToFloat(Bf16Bits bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline Bf16Bits FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<Bf16Bits>((bits >> 16) | 0x40U);
  return static_cast<Bf16Bits>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

}  // namespace kvring::kernels
