// Fuzz target of the tokenizer.json reader: any bytes load or fail with a message that names the file, and
// what loads encodes text into tokens that exist, none of them a control token but
// the unknown one.
#include <algorithm>
#include <string>

#include "replica/model/hf_tokenizer.h"
#include "replica/model/tokenizer.h"
#include "tests/fuzz/fuzz_target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvring::replica;
  const auto file = JsonFile::Parse({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!file.ok()) {
    Require(file.status().message().find("fuzz: ") == 0, "an error names the file");
    return 0;
  }
  const auto spec = ReadHfTokenizer(*file);
  if (!spec.ok()) {
    Require(spec.status().message().find("fuzz: ") == 0, "an error names the file");
    return 0;
  }
  size_t most = size + kMaxIdGap;
#ifdef KVRING_FUZZ_CANARY
  most = 16;
#endif
  Require(spec->tokens.size() <= most, "tokens are in proportion to the file");
  const auto tokenizer = Tokenizer::Create(*spec);
  if (!tokenizer.ok()) {
    Require(!tokenizer.status().message().empty(), "an error says what");
    return 0;
  }
  for (const char* text : {"ab<|end|> ab  12 caf\xC3\xA9\n\xE2\x96\x81", "\xFF<s>aab", " "}) {
    for (const auto id : tokenizer->Encode(text, ControlTokens::kAsText)) {
      Require(id >= 0 && id < tokenizer->vocab_size(), "tokens exist");
      Require(!tokenizer->IsControl(id) || id == spec->unknown, "text never becomes a control token");
    }
  }
  return 0;
}
