// What a GGUF file says about text: its tokenizer and its chat template.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "replica/model/gguf.h"
#include "replica/model/tokenizer_spec.h"

namespace kvring::replica {

/// Errors name the key.
absl::StatusOr<TokenizerSpec> ReadTokenizerSpec(const GgufFile& file);
/// The template's source; empty when the file has none (a base model).
absl::StatusOr<std::string> ReadChatTemplate(const GgufFile& file);

}  // namespace kvring::replica
