// Debian's absl has its own string_view, to which std's does not convert: for texts given to absl::StrCat.
#pragma once

#include <string_view>

#include "absl/strings/string_view.h"

namespace kvring {

inline absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

}  // namespace kvring
