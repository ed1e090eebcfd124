#include "common/json_text.h"

#include <charconv>
#include <cmath>

namespace kvring {
namespace {

constexpr char kHex[] = "0123456789abcdef";

void AppendEscape(std::string& out, unsigned char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHex[c >> 4];
      out += kHex[c & 15];
  }
}

// The value of four hex digits at `at`, or -1.
int HexAt(std::string_view json, size_t at) {
  if (at + 4 > json.size()) return -1;
  int value = -1;
  const auto [end, error] = std::from_chars(json.data() + at, json.data() + at + 4, value, 16);
  return error == std::errc() && end == json.data() + at + 4 ? value : -1;
}

bool IsHighSurrogate(int unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool IsLowSurrogate(int unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

}  // namespace

void AppendJsonString(std::string& out, std::string_view text) {
  out += '"';
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, plain, i - plain);
    AppendEscape(out, c);
    plain = i + 1;
  }
  out.append(text, plain);
  out += '"';
}

void AppendJsonNumber(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

void AppendJsonInt(std::string& out, int64_t value) {
  char buffer[24];
  out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

bool HasLoneSurrogate(std::string_view json) {
  for (size_t i = json.find('\\'); i != std::string_view::npos && i + 1 < json.size();
       i = json.find('\\', i)) {
    if (json[i + 1] != 'u') {
      i += 2;
      continue;
    }
    const int unit = HexAt(json, i + 2);
    if (IsLowSurrogate(unit)) return true;
    i += 6;
    if (!IsHighSurrogate(unit)) continue;
    if (i + 1 >= json.size() || json[i] != '\\' || json[i + 1] != 'u' || !IsLowSurrogate(HexAt(json, i + 2)))
      return true;
    i += 6;
  }
  return false;
}

}  // namespace kvring
