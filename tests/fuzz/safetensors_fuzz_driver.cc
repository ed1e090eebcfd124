// Runs the safetensors fuzz target without libFuzzer: seeded mutations (bytes, pieces of syntax, numbers,
// cuts) of a good file and of a good config.json.
//   safetensors_fuzz [RUNS [SEED]]     RUNS with an s, like 600s: for that many seconds
#include <cstring>
#include <string>

#include "tests/fuzz/fuzz_loop.h"

namespace {

using kvring::Random;

std::string GoodFile() {
  const std::string header =
      R"({"model.norm.weight":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
      R"("lm_head.weight":{"dtype":"BF16","shape":[2,3],"data_offsets":[16,28]},"__metadata__":{"format":"pt"}})";
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + std::string(28, '\x35');
}

constexpr char kGoodConfig[] =
    R"({"model_type":"qwen2","num_hidden_layers":2,"hidden_size":32,"intermediate_size":48,"vocab_size":48,)"
    R"("max_position_embeddings":64,"num_attention_heads":4,"num_key_value_heads":2,"use_sliding_window":true,)"
    R"("sliding_window":9,"layer_types":["full_attention","sliding_attention"],)"
    R"("rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":16}})";

void Mutate(std::string& bytes, Random& random) {
  static constexpr const char* kPieces[] = {
      "{", "}", "[", "]", ",", ":", "\"", "0", "-1", "1e999", "null", "[[", "99999999999999999999", "true"};
  const size_t at = random.Below(bytes.size());
  switch (random.Below(5)) {
    case 0:
      bytes[at] = static_cast<char>(random.Next());
      break;
    case 1:
      bytes.resize(1 + at);
      break;
    case 2:
      bytes.insert(at, kPieces[random.Below(std::size(kPieces))]);
      break;
    case 3:
      bytes.erase(at, 1 + random.Below(4));
      if (bytes.empty()) bytes = " ";
      break;
    default:
      bytes[random.Below(std::min<size_t>(8, bytes.size()))] = static_cast<char>(random.Below(256));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const FuzzPlan plan(std::span(argv, static_cast<size_t>(argc)).subspan(1), "20000");
  Random random(plan.seed);
  return RunFuzz(plan, random, [](Random& r) {
    std::string bytes = r.Below(2) == 0 ? GoodFile() : kGoodConfig;
    for (uint64_t n = r.Below(4); n > 0; --n) Mutate(bytes, r);
    return bytes;
  });
}
