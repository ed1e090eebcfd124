// The real model's tokenizer and template, loaded once per test program; tests that need them skip where the
// file is absent.
#pragma once

#include <memory>

#include "replica/model/chat_template.h"
#include "replica/model/gguf_text.h"
#include "tests/unit/replica/model/model_file.h"

namespace kvring::replica {

struct RealText {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat;
};

/// Null when the model file is not there.
inline const RealText* TheRealText() {
  static const RealText* const text = []() -> const RealText* {
    auto file = GgufFile::Open(ModelPath());
    if (!file.ok()) return nullptr;
    auto* loaded = new RealText;
    loaded->tokenizer =
        std::make_unique<Tokenizer>(Tokenizer::Create(ReadTokenizerSpec(*file).value()).value());
    loaded->chat = ChatTemplate::Create(ReadChatTemplate(*file).value(), *loaded->tokenizer).value();
    return loaded;
  }();
  return text;
}

}  // namespace kvring::replica
