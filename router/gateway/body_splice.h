// Replacing one value of a JSON body in place: every other byte stays as the client sent it (numbers keep
// their digits, key order and duplicates stay). Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace kvring::router {

struct JsonSpan {
  size_t offset = 0;
  size_t size = 0;
};

/// Where the value of a top-level key stands, quotes included; the last one if the key is repeated (as JSON
/// readers take it). nullopt: absent, or the text is not an object up to that point.
std::optional<JsonSpan> FindTopLevelValue(std::string_view json, std::string_view key);

/// Sets the top-level string `key` to `value` where it is present. False: it is not.
bool SpliceString(std::string& json, std::string_view key, std::string_view value);
/// The same, and where it is absent adds it as the first member. `json` is an object.
void SetString(std::string& json, std::string_view key, std::string_view value);

}  // namespace kvring::router
