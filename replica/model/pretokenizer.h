// Pre-tokenizer: cuts text into the pieces inside which BPE may merge. The rules are regular expressions over
// Unicode classes, run by PCRE2; a rule set is named as in GGUF's tokenizer.ggml.pre. White space is
// Unicode's White_Space property, spelled out, since PCRE2's own \s differs at U+180E. Immutable after
// Create; thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvring::replica {

class Pretokenizer {
 public:
  /// Names known: "smollm", "gpt2" (alias "gpt-2", "default"), "llama3" (alias "llama-bpe"), "qwen2".
  /// Unknown: an error that lists them.
  static absl::StatusOr<Pretokenizer> Create(std::string_view name);
  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  /// Calls `piece` with each piece, in order; together they are exactly `text`. `text` must be valid UTF-8.
  void Split(std::string_view text, const std::function<void(std::string_view)>& piece) const;

 private:
  class Rules;
  explicit Pretokenizer(std::unique_ptr<Rules> rules);
  std::unique_ptr<Rules> rules_;
};

}  // namespace kvring::replica
