// EncodedPrompt: a prompt's tokens and, for each, how much of the canonical prompt must be equal for the
// token to be equal.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "common/ids.h"
#include "replica/model/tokenizer.h"

namespace kvring::replica {

struct EncodedPrompt {
  std::vector<TokenId> tokens;
  std::vector<uint32_t> end_bytes;  // one per token, never falling; offsets in the canonical bytes
  bool typed_bos = false;           // the text brought the BOS that the model wants
};

/// A raw completion prompt: control tokens typed into it count, since its writer is the template. One BOS
/// where the model wants one; a prompt that starts with BOS gets no second (TOK-07).
EncodedPrompt EncodeText(const Tokenizer& tokenizer, std::string_view text);

/// Of `end_bytes` those of whole blocks: entry k is the end of tokens [k·block_size, (k+1)·block_size).
std::vector<uint32_t> BlockEnds(const std::vector<uint32_t>& end_bytes, int32_t block_size);

}  // namespace kvring::replica
