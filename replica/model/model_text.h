// ModelText: what a model on disk says about text: its tokenizer and its chat template. A path is a .gguf
// file or a directory in the Hugging Face layout: tokenizer.json (hf_tokenizer.h); tokenizer_config.json for
// bos_token, eos_token, add_bos_token and the template, if they are there; chat_template.jinja, which goes
// before it; generation_config.json, else config.json, for more tokens that end an answer.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "replica/model/tokenizer_spec.h"

namespace kvring::replica {

struct ModelText {
  TokenizerSpec tokenizer;    // as many tokens as the model has rows
  std::string chat_template;  // its source; empty: none (a base model)
};

/// Errors name the file and the field.
absl::StatusOr<ModelText> ReadModelText(const std::string& path);

constexpr size_t kMaxTemplateBytes = 1 << 20;
/// A vocab_size may be padded by this many tokens that no tokenizer knows.
constexpr size_t kMaxVocabularyPadding = 1 << 16;

}  // namespace kvring::replica
