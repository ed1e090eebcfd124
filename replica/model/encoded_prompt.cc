#include "replica/model/encoded_prompt.h"

namespace kvring::replica {

EncodedPrompt EncodeText(const Tokenizer& tokenizer, std::string_view text) {
  EncodedPrompt prompt;
  prompt.tokens = tokenizer.Encode(text, ControlTokens::kParse);
  const bool has_bos = !prompt.tokens.empty() && prompt.tokens.front() == tokenizer.bos();
  const bool add_bos = tokenizer.add_bos() && !has_bos;
  prompt.typed_bos = tokenizer.add_bos() && has_bos;
  if (add_bos) prompt.tokens.insert(prompt.tokens.begin(), tokenizer.bos());
  size_t end = 0;
  for (size_t i = 0; i < prompt.tokens.size(); ++i) {
    if (i > 0 || !add_bos) end = tokenizer.EndOf(prompt.tokens[i], text, end);
    prompt.end_bytes.push_back(static_cast<uint32_t>(end));
  }
  return prompt;
}

std::vector<uint32_t> BlockEnds(const std::vector<uint32_t>& end_bytes, int32_t block_size) {
  std::vector<uint32_t> ends;
  const auto block = static_cast<size_t>(block_size);
  for (size_t end = block; end <= end_bytes.size(); end += block) ends.push_back(end_bytes[end - 1]);
  return ends;
}

}  // namespace kvring::replica
