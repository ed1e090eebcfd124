// ChoiceText: one choice's tokens on their way to text: held-back characters and stop strings
// (replica/model/text_stream.h), the log probabilities that go with the text sent, and, for the first choice,
// what is needed to say which blocks a follow-up turn will find. Engine thread only.
#pragma once

#include <string>
#include <vector>

#include "common/openai/response_writer.h"
#include "replica/engine/request.h"
#include "replica/model/text_stream.h"
#include "replica/model/tokenizer.h"

namespace kvring::replica {

class ChoiceText {
 public:
  ChoiceText(const Tokenizer& tokenizer, std::vector<std::string> stops)
      : tokenizer_(tokenizer), stream_(std::move(stops)) {}

  struct Piece {
    std::string text;
    std::vector<TokenId> tokens;
    std::vector<openai::TokenLogprob> logprobs;
    bool stopped = false;
  };
  /// A sampled token. An end-of-sequence token has no text.
  Piece Push(const EngineEvent::Token& token);
  /// A token of the prompt that is echoed: its log probability only, its text is sent as a whole.
  void PushPrompt(const EngineEvent::PromptToken& token);
  void PushEcho(std::string_view text) { echo_ += text; }
  /// What is left when the choice ends.
  Piece Finish(bool stopped);

  /// Tokens whose keys and values are computed and whose text was sent, and that text.
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::string& text() const { return text_; }
  /// All sampled tokens, an end-of-sequence token included.
  int32_t sampled() const { return sampled_; }

 private:
  openai::TokenLogprob LogprobOf(TokenId token, const TokenLogprobs& logprobs) const;

  const Tokenizer& tokenizer_;
  TextStream stream_;
  std::string echo_;
  std::string text_;
  std::vector<TokenId> tokens_;
  std::vector<openai::TokenLogprob> held_logprobs_;
  int32_t sampled_ = 0;
};

/// Offsets in the canonical bytes at which the whole blocks of `prompt_ends` and the answer end: the answer's
/// tokens as far as a follow-up turn, which tokenises the answer's text anew, will have the same ones, and as
/// far as they are computed. `prompt`: the prompt's tokens. `answer_begin`: canonical offset of the answer's
/// first byte.
std::vector<uint32_t> ConversationBlockEnds(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt,
                                            std::vector<uint32_t> prompt_ends, const ChoiceText& answer,
                                            size_t answer_begin, int32_t block_size);

}  // namespace kvring::replica
