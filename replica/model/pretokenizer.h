// Pre-tokenizer: cuts text into the pieces inside which BPE may merge. The rules are regular expressions in
// the dialect of tokenizer.json (Oniguruma), run by PCRE2, each applied inside the pieces of the one before;
// what no match covers is a piece of its own. White space is Unicode's White_Space property, spelled out,
// since PCRE2's own \s differs at U+180E. An expression may give up on some text (PCRE2's match limit): the
// rest is then one piece. Immutable after Create; thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace kvring::replica {

/// The expressions of a rule set by its name in GGUF's tokenizer.ggml.pre: "smollm", "gpt2" (alias "gpt-2",
/// "default"), "llama3" (alias "llama-bpe", "llama-v3"), "qwen2". Unknown: an error that lists them.
absl::StatusOr<std::vector<std::string>> NamedSplits(std::string_view name);

/// Expressions of parts of tokenizer.json.
extern const std::string_view kByteLevelSplit;  // ByteLevel with use_regex
extern const std::string_view kDigitSplit;      // Digits, each by itself
extern const std::string_view kDigitsSplit;     // Digits, neighbours together
extern const std::string_view kMetaspaceSplit;  // Metaspace with split

class Pretokenizer {
 public:
  /// InvalidArgument names an expression that does not compile; Unimplemented what the two dialects read
  /// differently (\w, \b, \h, nested classes, possessive intervals).
  static absl::StatusOr<Pretokenizer> Create(std::span<const std::string> splits);
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
