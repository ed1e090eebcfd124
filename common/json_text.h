// Writing JSON by appending to a string: what the answers on the hot path need, no tree in between.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace kvring {

/// Appends `text` as a JSON string with its quotes. `text` must be valid UTF-8; control characters are
/// escaped.
void AppendJsonString(std::string& out, std::string_view text);
/// Shortest decimal that reads back equal; NaN and infinities become null.
void AppendJsonNumber(std::string& out, double value);
void AppendJsonInt(std::string& out, int64_t value);

/// Whether every \u escape inside the JSON text is a character: no lone surrogate (RFC 8259 §8.2, I-JSON
/// §2.1).
bool HasLoneSurrogate(std::string_view json);

}  // namespace kvring
