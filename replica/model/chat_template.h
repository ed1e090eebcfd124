// ChatTemplate: messages to prompt tokens by the model's own template. What a user wrote is plain text
// wherever the template puts it; control tokens come from the template alone (TOK-05). Text between control
// tokens is encoded piece by piece through a bounded cache, so an appended turn costs only its own text and
// always equals encoding the whole (TOK-09). Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/chat_message.h"
#include "replica/model/encoded_prompt.h"
#include "replica/model/segment_cache.h"
#include "replica/model/tokenizer.h"

namespace kvring::replica {

struct ChatInput {
  const std::vector<ChatMessage>* messages = nullptr;
  std::string_view tools_json;  // raw JSON array, or empty
  size_t canonical_size = 0;
  int64_t unix_seconds = 0;  // what the template's clock shows
};

class ChatTemplate {
 public:
  /// `tokenizer` must outlive it. InvalidArgument: the source does not parse, with its line.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Create(std::string_view source,
                                                              const Tokenizer& tokenizer);
  ~ChatTemplate();

  /// The prompt's tokens, the generation prompt included; exactly one BOS where the model wants one (TOK-07).
  /// InvalidArgument: the template refuses these messages (its own words), or they are beyond its limits.
  absl::StatusOr<EncodedPrompt> Encode(const ChatInput& input) const;

  const SegmentCache& cache() const { return *cache_; }

 private:
  class Source;
  ChatTemplate(std::unique_ptr<Source> source, const Tokenizer& tokenizer);

  std::unique_ptr<Source> source_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<SegmentCache> cache_;
};

}  // namespace kvring::replica
