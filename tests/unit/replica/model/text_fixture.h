// The real model's tokenizer and template, loaded once per test program; tests that need them skip where the
// file is absent.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "replica/model/chat_template.h"
#include "replica/model/gguf_text.h"

namespace kvring::replica {

inline std::string ModelPath() {
  if (const char* path = std::getenv("KVRING_MODEL")) return path;
  const char* home = std::getenv("HOME");
  return std::string(home == nullptr ? "" : home) + "/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf";
}

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

#define KVRING_NEEDS_MODEL()    \
  if (TheRealText() == nullptr) \
  GTEST_SKIP() << "model file not found: " << ModelPath() << " (set KVRING_MODEL)"
