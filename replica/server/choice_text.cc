#include "replica/server/choice_text.h"

#include <algorithm>
#include <limits>

#include "replica/model/encoded_prompt.h"

namespace kvring::replica {

openai::TokenLogprob ChoiceText::LogprobOf(TokenId token, const TokenLogprobs& logprobs) const {
  openai::TokenLogprob out{tokenizer_.Bytes(token), logprobs.logprob, {}};
  for (const TokenLogprob& top : logprobs.top) out.top.push_back({tokenizer_.Bytes(top.token), top.logprob});
  return out;
}

ChoiceText::Piece ChoiceText::Push(const EngineEvent::Token& token) {
  ++sampled_;
  Piece piece;
  if (token.end_of_sequence) return piece;
  tokens_.push_back(token.token);
  if (token.logprobs.has_value()) held_logprobs_.push_back(LogprobOf(token.token, *token.logprobs));
  TextStream::Piece text =
      stream_.Push(tokenizer_.IsControl(token.token) ? "" : tokenizer_.Bytes(token.token));
  piece.stopped = text.stopped;
  piece.text = std::move(echo_) + text.text;
  echo_.clear();
  text_ += text.text;
  piece.tokens.push_back(token.token);
  piece.logprobs = std::move(held_logprobs_);
  held_logprobs_.clear();
  return piece;
}

void ChoiceText::PushPrompt(const EngineEvent::PromptToken& token) {
  // Nothing precedes the first token: it has no probability, null on the wire.
  const TokenLogprobs none{std::numeric_limits<float>::quiet_NaN(), {}};
  held_logprobs_.push_back(LogprobOf(token.token, token.logprobs.value_or(none)));
}

ChoiceText::Piece ChoiceText::Finish(bool stopped) {
  Piece piece;
  piece.text = std::move(echo_);
  echo_.clear();
  if (!stopped) {
    const std::string rest = stream_.Finish();
    text_ += rest;
    piece.text += rest;
  }
  piece.logprobs = std::move(held_logprobs_);
  held_logprobs_.clear();
  return piece;
}

std::vector<uint32_t> ConversationBlockEnds(const Tokenizer& tokenizer, const std::vector<TokenId>& prompt,
                                            std::vector<uint32_t> prompt_ends, const ChoiceText& answer,
                                            size_t answer_begin, int32_t block_size) {
  const size_t computed = prompt.size() + static_cast<size_t>(std::max(answer.sampled(), 1)) - 1;
  if (computed == prompt.size()) return BlockEnds(prompt_ends, block_size);
  // The piece of text that the next turn encodes as one: from behind the last control token to the answer's
  // end.
  size_t tail = prompt.size();
  while (tail > 0 && !tokenizer.IsControl(prompt[tail - 1])) --tail;
  std::vector<TokenId> ours(prompt.begin() + static_cast<ptrdiff_t>(tail), prompt.end());
  const TextPlace place = tail == 0 ? TextPlace::kBeginning : TextPlace::kBehindTokens;
  const std::string head = tokenizer.DecodeBytes(ours, place);
  ours.insert(ours.end(), answer.tokens().begin(), answer.tokens().end());
  const std::vector<TokenId> theirs = tokenizer.Encode(head + answer.text(), ControlTokens::kAsText, place);
  size_t end = answer_begin;
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()) && ours[i] == theirs[i] && tail + i < computed;
       ++i) {
    if (tail + i < prompt.size()) continue;
    end += tokenizer.Bytes(ours[i]).size();
    prompt_ends.push_back(static_cast<uint32_t>(end));
  }
  return BlockEnds(prompt_ends, block_size);
}

}  // namespace kvring::replica
