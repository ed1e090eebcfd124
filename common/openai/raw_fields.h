// RawFields: the fields of a JSON object with their values as they stand in the text, white space and key
// order kept. Owns a copy of the text.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace kvring::openai {

class RawFields {
 public:
  /// InvalidArgument: not a JSON object, or something stands behind it.
  static absl::StatusOr<RawFields> Read(std::string_view json);

  /// Empty when absent or null. The first of equal names.
  std::string_view Raw(std::string_view name) const;
  std::string_view FirstOf(std::initializer_list<std::string_view> names) const;

 private:
  std::unique_ptr<std::string> text_;  // its address stays when the fields move
  std::vector<std::pair<std::string, std::string_view>> fields_;
};

}  // namespace kvring::openai
