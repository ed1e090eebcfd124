// Values in running text that are known by their form: points in time, dates, UUIDs, e-mail addresses. Pure.
//
//   timestamp  2026-08-21T14:32:07.123Z · 2026-08-21 14:32 · Fri, 21 Aug 2026 14:32:07 GMT · 2:32 PM ·
//   14:32:07
//              · 20260821T143207Z · 1787322727 (s, 10 digits) · 1787322727123 (ms)
//   date       2026-08-21 · 21/08/2026 · August 21, 2026 · Aug 21 · 21 August 2026 · Friday · 20260821
//   uuid       8-4-4-4-12 hexadecimal digits
//   e-mail     name@host.domain
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace kvring::router {

enum class ValueForm { kTimestamp, kDate, kUuid, kEmail };

struct FormedValue {
  ValueForm form = ValueForm::kDate;
  size_t begin = 0;
  size_t end = 0;
};

/// The first value of `text` that touches offset `at` (begin ≤ at ≤ end). Only what is near `at` is looked
/// at.
std::optional<FormedValue> FindFormedValue(std::string_view text, size_t at);

}  // namespace kvring::router
