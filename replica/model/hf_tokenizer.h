// TokenizerSpec from a tokenizer.json (Hugging Face tokenizers): BPE that is byte-level or SentencePiece's
// (byte_fallback, spaces as U+2581), its normalizer, pre-tokenizer, added tokens and the BOS that its
// post-processor puts in front. A part that is not built in is Unimplemented with its place, never ignored;
// the decoder is not read, since a token's bytes follow from the model.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "replica/model/json_file.h"
#include "replica/model/tokenizer_spec.h"

namespace kvring::replica {

/// Errors name the file and the place in it. `stops` stays empty. Ids without a token become unused tokens;
/// at most kMaxIdGap of them.
absl::StatusOr<TokenizerSpec> ReadHfTokenizer(const JsonFile& file);

constexpr size_t kMaxIdGap = 4096;

}  // namespace kvring::replica
