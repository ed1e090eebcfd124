#include "router/ledger/changed_value.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "common/canonical_prompt.h"
#include "router/ledger/dated_value.h"

namespace kvring::router {
namespace {

constexpr size_t kLongText = 32;          // bytes and
constexpr size_t kLongWords = 4;          // words from which a change is free text
constexpr uint64_t kCounterStep = 10000;  // two numbers nearer than this count something

std::string_view Text(std::string_view text, ByteSpan span) { return text.substr(span.begin, span.length()); }

bool IsBorder(char c) {
  return absl::ascii_isspace(c) || absl::ascii_iscntrl(c) ||
         std::string_view("\"'`()[]{}<>,;|=").find(c) != std::string_view::npos;
}

// To whole words; punctuation that ends a sentence stays outside.
ByteSpan Words(std::string_view text, ByteSpan span) {
  const size_t first = span.begin;
  while (span.begin > 0 && !IsBorder(text[span.begin - 1])) --span.begin;
  while (span.end < text.size() && !IsBorder(text[span.end])) ++span.end;
  while (span.end > first && (std::string_view(".:!?").find(text[span.end - 1]) != std::string_view::npos ||
                              IsBorder(text[span.end - 1])))
    --span.end;
  return span;
}

size_t WordCount(std::string_view text) {
  size_t words = 0;
  bool inside = false;
  for (const char c : text) {
    const bool space = absl::ascii_isspace(c);
    words += !space && !inside;
    inside = !space;
  }
  return words;
}

std::string WithoutSpace(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out), [](char c) { return !absl::ascii_isspace(c); });
  return out;
}

// To whole runs of white space.
ByteSpan Spaces(std::string_view text, ByteSpan span) {
  while (span.begin > 0 && absl::ascii_isspace(text[span.begin - 1])) --span.begin;
  while (span.end < text.size() && absl::ascii_isspace(text[span.end])) ++span.end;
  return span;
}

bool IsWhitespaceChange(std::string_view a, ByteSpan earlier, std::string_view b, ByteSpan now) {
  return WithoutSpace(Text(a, earlier)) == WithoutSpace(Text(b, now));
}

DivergenceClass ClassOfForm(ValueForm form) {
  switch (form) {
    case ValueForm::kTimestamp:
      return DivergenceClass::kTimestamp;
    case ValueForm::kDate:
      return DivergenceClass::kDate;
    case ValueForm::kUuid:
      return DivergenceClass::kUuid;
    case ValueForm::kEmail:
      return DivergenceClass::kUserValue;
  }
  return DivergenceClass::kOther;
}

// The run of letters, digits, '-' and '_' around `at`.
ByteSpan Core(std::string_view text, size_t at) {
  const auto inside = [&](size_t i) {
    return absl::ascii_isalnum(text[i]) || text[i] == '-' || text[i] == '_';
  };
  ByteSpan core{at, at};
  while (core.begin > 0 && inside(core.begin - 1)) --core.begin;
  while (core.end < text.size() && inside(core.end)) ++core.end;
  return core;
}

ByteSpan DigitsAround(std::string_view text, size_t at) {
  ByteSpan run{at, at};
  while (run.begin > 0 && absl::ascii_isdigit(text[run.begin - 1])) --run.begin;
  while (run.end < text.size() && absl::ascii_isdigit(text[run.end])) ++run.end;
  return run;
}

uint64_t Number(std::string_view digits) {
  uint64_t value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

// Two numbers in the same surroundings: near each other they count, far from each other they are drawn.
std::optional<ChangedText> NumberChange(std::string_view a, std::string_view b, size_t at) {
  const ByteSpan x = DigitsAround(a, at);
  const ByteSpan y = DigitsAround(b, at);
  if (x.length() == 0 || y.length() == 0 || x.length() > 18 || y.length() > 18) return std::nullopt;
  const auto letter = [](std::string_view text, size_t i) {
    return i < text.size() && absl::ascii_isalpha(text[i]);
  };
  if (letter(a, x.end) || letter(b, y.end)) return std::nullopt;
  const uint64_t p = Number(Text(a, x));
  const uint64_t q = Number(Text(b, y));
  const uint64_t step = std::max(p, q) - std::min(p, q);
  const bool counts = step <= kCounterStep;
  return ChangedText{counts ? DivergenceClass::kCounter : DivergenceClass::kNonce, x, y};
}

// Letters and digits mixed, or many hexadecimal digits: no word of a language.
bool LooksDrawn(std::string_view word) {
  const auto digits = std::ranges::count_if(word, [](char c) { return absl::ascii_isdigit(c); });
  const auto uppers = std::ranges::count_if(word, [](char c) { return absl::ascii_isupper(c); });
  const auto letters = std::ranges::count_if(word, [](char c) { return absl::ascii_isalpha(c); });
  if (word.size() < 6) return false;
  if (digits > 0 && letters > 0) return true;
  return word.size() >= 12 && (letters == 0 || (uppers > 1 && uppers < letters && word.size() >= 16));
}

std::optional<ChangedText> NonceChange(std::string_view a, std::string_view b, size_t at) {
  const ByteSpan x = Core(a, at);
  const ByteSpan y = Core(b, at);
  const bool either = LooksDrawn(Text(a, x)) || LooksDrawn(Text(b, y));
  const bool alike =
      x.length() >= 6 && y.length() >= 6 && x.length() <= 2 * y.length() && y.length() <= 2 * x.length();
  if (!either || !alike) return std::nullopt;
  return ChangedText{DivergenceClass::kNonce, x, y};
}

constexpr std::string_view kOwners[] = {
    "name",     "user",    "username", "customer", "client",  "dear",     "assisting", "helping",
    "with",     "hello",   "hi",       "email",    "account", "patient",  "student",   "member",
    "employee", "company", "tenant",   "talking",  "for",     "mail",     "owner",     "serving",
    "tutor",    "coach",   "pupil",    "learner",  "advisor", "secretary"};

// Whether one of the last words before `at`, on its line, says that somebody's own value follows.
bool OwnerBefore(std::string_view text, size_t at) {
  const size_t from = at > 40 ? at - 40 : 0;
  std::string before = absl::AsciiStrToLower({text.data() + from, at - from});
  if (const size_t line = before.rfind('\n'); line != std::string::npos) before.erase(0, line);
  std::replace_if(
      before.begin(), before.end(), [](char c) { return !absl::ascii_isalpha(c); }, ' ');
  before += ' ';
  for (const std::string_view owner : kOwners)
    if (before.find(" " + std::string(owner) + " ") != std::string::npos) return true;
  return before.starts_with("name ") || before.starts_with("user ");
}

bool IsName(std::string_view text) {
  if (text.empty() || text.size() > 48 || WordCount(text) > 4) return false;
  return absl::ascii_isupper(text.front()) || static_cast<unsigned char>(text.front()) >= 0x80 ||
         WordCount(text) == 1;
}

bool IsUserValue(std::string_view a, ByteSpan earlier, std::string_view b, ByteSpan now, PromptPart part) {
  return part == PromptPart::kSystem && OwnerBefore(b, now.begin) && IsName(Text(a, earlier)) &&
         IsName(Text(b, now));
}

bool IsLong(std::string_view text) { return text.size() >= kLongText && WordCount(text) >= kLongWords; }

// A value that both versions have at the place where they part, unless it only begins a longer text.
std::optional<ChangedText> FormedChange(std::string_view a, ByteSpan earlier, std::string_view b,
                                        ByteSpan now) {
  const auto x = FindFormedValue(a, earlier.begin);
  const auto y = FindFormedValue(b, now.begin);
  if (!x || !y || x->form != y->form) return std::nullopt;
  const size_t value = y->end - y->begin;
  if (now.length() > 4 * value + 32) return std::nullopt;
  return ChangedText{ClassOfForm(y->form), {x->begin, x->end}, {y->begin, y->end}};
}

}  // namespace

ChangedText ClassifyChange(std::string_view a, ByteSpan earlier, std::string_view b, ByteSpan now,
                           PromptPart part) {
  if (IsWhitespaceChange(a, earlier, b, now))
    return {DivergenceClass::kWhitespace, Spaces(a, earlier), Spaces(b, now)};
  if (const auto formed = FormedChange(a, earlier, b, now)) return *formed;
  const ByteSpan x = Words(a, earlier);
  const ByteSpan y = Words(b, now);
  if (IsUserValue(a, x, b, y, part)) return {DivergenceClass::kUserValue, x, y};
  if (IsLong(Text(a, x)) || IsLong(Text(b, y))) return {DivergenceClass::kVariableFirst, x, y};
  if (const auto number = NumberChange(a, b, now.begin)) return *number;
  if (const auto nonce = NonceChange(a, b, now.begin)) return *nonce;
  return {DivergenceClass::kOther, x, y};
}

}  // namespace kvring::router
