// Merges of a SentencePiece vocabulary, which has scores in place of a list (Kudo 2018, bpe_model.cc): any
// two neighbours whose text is a token may merge, the token of highest score first, the leftmost pair of
// equal ones. Pure.
#pragma once

#include <span>

#include "replica/model/tokenizer_spec.h"

namespace kvring::replica {

/// Fills spec.merges and spec.ranks from its tokens and their scores (as many, higher is better).
void AddScoreMerges(std::span<const float> scores, TokenizerSpec& spec);

}  // namespace kvring::replica
