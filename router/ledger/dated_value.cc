#include "router/ledger/dated_value.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "common/hex_digit.h"

namespace kvring::router {
namespace {

constexpr size_t kReach = 64;  // no value begins farther before the offset that it touches

// Reads forms from one place on; every Take function either goes past its form or stays.
class Cursor {
 public:
  Cursor(std::string_view text, size_t at) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  void Back(size_t at) { at_ = at; }
  bool Char(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool OneOf(std::string_view set) {
    if (at_ >= text_.size() || set.find(text_[at_]) == std::string_view::npos) return false;
    ++at_;
    return true;
  }
  void Spaces() {
    while (Char(' ')) {
    }
  }
  // Exactly `least` to `most` digits, or nothing.
  bool Digits(size_t least, size_t most) {
    size_t n = 0;
    while (at_ + n < text_.size() && absl::ascii_isdigit(text_[at_ + n])) ++n;
    if (n < least || n > most) return false;
    at_ += n;
    return true;
  }
  bool Hex(size_t count) {
    if (at_ + count > text_.size()) return false;
    for (size_t i = 0; i < count; ++i)
      if (HexDigit(text_[at_ + i]) < 0) return false;
    at_ += count;
    return true;
  }
  // A word of `words`, spelled out or by its first three letters, any case.
  template <size_t N>
  bool Word(const std::array<std::string_view, N>& words) {
    size_t n = 0;
    while (at_ + n < text_.size() && absl::ascii_isalpha(text_[at_ + n])) ++n;
    for (const std::string_view word : words) {
      if (n != word.size() && n != 3) continue;
      if (!std::equal(word.begin(), word.begin() + static_cast<ptrdiff_t>(n), text_.begin() + at_,
                      [](char w, char c) { return w == absl::ascii_tolower(c); }))
        continue;
      at_ += n;
      return true;
    }
    return false;
  }
  bool AtWordEnd() const { return at_ >= text_.size() || !absl::ascii_isalnum(text_[at_]); }
  std::string_view Since(size_t begin) const { return text_.substr(begin, at_ - begin); }

 private:
  std::string_view text_;
  size_t at_;
};

constexpr std::array<std::string_view, 12> kMonths = {"january",   "february", "march",    "april",
                                                      "may",       "june",     "july",     "august",
                                                      "september", "october",  "november", "december"};
constexpr std::array<std::string_view, 7> kDays = {"monday", "tuesday",  "wednesday", "thursday",
                                                   "friday", "saturday", "sunday"};

bool TakeIsoDate(Cursor& c) {
  const size_t begin = c.at();
  for (const char separator : {'-', '/', '.'}) {
    if (c.Digits(4, 4) && c.Char(separator) && c.Digits(1, 2) && c.Char(separator) && c.Digits(1, 2))
      return true;
    c.Back(begin);
    if (c.Digits(1, 2) && c.Char(separator) && c.Digits(1, 2) && c.Char(separator) && c.Digits(4, 4))
      return true;
    c.Back(begin);
  }
  return false;
}

// 20260821: a year of this century, a month and a day.
bool TakeCompactDate(Cursor& c) {
  const size_t begin = c.at();
  if (c.Digits(8, 8)) {
    const std::string_view digits = c.Since(begin);
    if (digits.starts_with("20") && digits.substr(4, 2) <= "12" && digits.substr(6, 2) <= "31") return true;
  }
  c.Back(begin);
  return false;
}

void TakeOrdinal(Cursor& c) {
  const size_t begin = c.at();
  if (c.OneOf("snrt") && c.OneOf("tdh") && c.AtWordEnd()) return;
  c.Back(begin);
}

// ", 2026" or " 2026"
void TakeYear(Cursor& c) {
  const size_t begin = c.at();
  c.Char(',');
  c.Spaces();
  if (c.at() > begin && c.Digits(4, 4)) return;
  c.Back(begin);
}

bool TakeMonthDay(Cursor& c) {
  const size_t begin = c.at();
  if (c.Word(kMonths)) {
    c.Char('.');
    c.Spaces();
    if (c.Digits(1, 2)) {
      TakeOrdinal(c);
      TakeYear(c);
      return true;
    }
  }
  c.Back(begin);
  return false;
}

bool TakeDayMonth(Cursor& c) {
  const size_t begin = c.at();
  if (c.Digits(1, 2)) {
    TakeOrdinal(c);
    c.OneOf(" -");
    if (c.Word(kMonths)) {
      c.OneOf(".-");
      TakeYear(c);
      return true;
    }
  }
  c.Back(begin);
  return false;
}

bool TakePlainDate(Cursor& c) {
  return TakeIsoDate(c) || TakeMonthDay(c) || TakeDayMonth(c) || TakeCompactDate(c);
}

// A date, with or without the day of the week before it; or that day alone, spelled out.
bool TakeDate(Cursor& c) {
  const size_t begin = c.at();
  if (!c.Word(kDays)) return TakePlainDate(c);
  const size_t day_end = c.at();
  c.OneOf(".,");
  c.Spaces();
  if (TakePlainDate(c)) return true;
  c.Back(day_end);
  if (c.Since(begin).size() > 3 && c.AtWordEnd()) return true;
  c.Back(begin);
  return false;
}

void TakeZone(Cursor& c) {
  const size_t begin = c.at();
  if (c.Char('Z')) return;
  c.Spaces();
  for (const std::string_view zone : {"UTC", "GMT"}) {
    const size_t from = c.at();
    if (c.Char(zone[0]) && c.Char(zone[1]) && c.Char(zone[2])) return;
    c.Back(from);
  }
  if (c.OneOf("+-") && (c.Digits(4, 4) || (c.Digits(2, 2) && c.Char(':') && c.Digits(2, 2)))) return;
  c.Back(begin);
}

void TakeHalfOfDay(Cursor& c) {
  const size_t begin = c.at();
  c.Spaces();
  if (c.OneOf("aApP") && c.OneOf("mM") && c.AtWordEnd()) return;
  c.Back(begin);
}

// 14:32, 2:32 PM, 14:32:07.123+02:00
bool TakeTime(Cursor& c) {
  const size_t begin = c.at();
  if (c.Digits(1, 2) && c.Char(':') && c.Digits(2, 2)) {
    size_t whole = c.at();
    if (c.Char(':') && c.Digits(2, 2)) {
      whole = c.at();
      if (c.OneOf(".,") && c.Digits(1, 9)) whole = c.at();
    }
    c.Back(whole);
    TakeHalfOfDay(c);
    TakeZone(c);
    return true;
  }
  c.Back(begin);
  return false;
}

// Seconds or milliseconds since 1970, from 2001 to 2033, or seconds with a fraction.
bool TakeEpoch(Cursor& c) {
  const size_t begin = c.at();
  if (c.Digits(10, 10) || c.Digits(13, 13)) {
    if (c.Since(begin).starts_with('1')) {
      const size_t whole = c.at();
      if (!(c.Char('.') && c.Digits(1, 9))) c.Back(whole);
      return c.AtWordEnd();
    }
  }
  c.Back(begin);
  return false;
}

bool TakeCompactTime(Cursor& c) {
  const size_t begin = c.at();
  if (TakeCompactDate(c) && c.OneOf("T-_") && c.Digits(4, 6)) {
    c.Char('Z');
    return true;
  }
  c.Back(begin);
  return false;
}

bool TakeTimeBehindDate(Cursor& c) {
  const size_t begin = c.at();
  c.OneOf("T,");
  c.Spaces();
  if (c.Char('a') && c.Char('t')) c.Spaces();
  if (TakeTime(c)) {
    TakeYear(c);  // Fri Aug 21 14:32:07 2026
    return true;
  }
  c.Back(begin);
  return false;
}

bool TakeUuid(Cursor& c) {
  const size_t begin = c.at();
  if (c.Hex(8) && c.Char('-') && c.Hex(4) && c.Char('-') && c.Hex(4) && c.Char('-') && c.Hex(4) &&
      c.Char('-') && c.Hex(12) && c.AtWordEnd())
    return true;
  c.Back(begin);
  return false;
}

bool TakeMailWord(Cursor& c) {
  const size_t begin = c.at();
  while (c.OneOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-")) {
  }
  return c.at() > begin;
}

bool TakeEmail(Cursor& c) {
  const size_t begin = c.at();
  if (TakeMailWord(c) && c.Char('@')) {
    const size_t host = c.at();
    if (TakeMailWord(c)) {
      if (c.Since(host).ends_with('.')) c.Back(c.at() - 1);  // of the sentence
      if (c.Since(host).find('.') != std::string_view::npos) return true;
    }
  }
  c.Back(begin);
  return false;
}

std::optional<FormedValue> ValueAt(std::string_view text, size_t begin) {
  Cursor c(text, begin);
  const auto value = [&](ValueForm form) { return FormedValue{form, begin, c.at()}; };
  if (TakeUuid(c)) return value(ValueForm::kUuid);
  if (TakeCompactTime(c) || TakeEpoch(c) || TakeTime(c)) return value(ValueForm::kTimestamp);
  if (TakeDate(c)) return value(TakeTimeBehindDate(c) ? ValueForm::kTimestamp : ValueForm::kDate);
  if (TakeEmail(c)) return value(ValueForm::kEmail);
  return std::nullopt;
}

}  // namespace

std::optional<FormedValue> FindFormedValue(std::string_view text, size_t at) {
  size_t begin = at > kReach ? at - kReach : 0;
  while (begin <= at && begin < text.size()) {
    const bool inside_word =
        begin > 0 && absl::ascii_isalnum(text[begin - 1]) && absl::ascii_isalnum(text[begin]);
    if (!inside_word) {
      const auto value = ValueAt(text, begin);
      if (value && value->end >= at) return value;
      if (value) begin = std::max(begin, value->end - 1);
    }
    ++begin;
  }
  return std::nullopt;
}

}  // namespace kvring::router
