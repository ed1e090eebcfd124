#include "replica/model/composed_text.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>

#include "common/check.h"

namespace kvring::replica {

std::string Composed(std::string_view text) {
  // Below U+0300 nothing combines.
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; }))
    return std::string(text);
  UErrorCode error = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(error);
  KVRING_CHECK(U_SUCCESS(error));
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  nfc->normalizeUTF8(0, {text.data(), static_cast<int32_t>(text.size())}, sink, nullptr, error);
  KVRING_CHECK(U_SUCCESS(error));
  return out;
}

}  // namespace kvring::replica
