// Unicode NFC: text with characters composed, as Qwen's tokenizers want it (UAX #15; tables of ICU). Pure.
#pragma once

#include <string>
#include <string_view>

namespace kvring::replica {

/// `text`, which is valid UTF-8, composed. Text that is composed already costs one pass.
std::string Composed(std::string_view text);

}  // namespace kvring::replica
