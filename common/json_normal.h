// Normal forms of JSON texts: what tells apart a value that changed from one that was only written otherwise
// (order of keys, white space, order of elements). Pure; any text may be given.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvring {

/// The same value with object keys sorted and nothing between the tokens; equal for equal values. nullopt:
/// not one JSON value.
std::optional<std::string> NormalJson(std::string_view json);
/// NormalJson of each element, in order. nullopt: not a JSON array.
std::optional<std::vector<std::string>> NormalJsonElements(std::string_view json);

/// The text without the white space that stands outside its strings; key order stays.
std::string WithoutJsonSpace(std::string_view json);

/// Offset behind the object or array that begins at `begin`; npos: its end is not in the text. Strings are
/// skipped whole; what stands between the brackets is not judged.
size_t JsonEnd(std::string_view text, size_t begin);

}  // namespace kvring
