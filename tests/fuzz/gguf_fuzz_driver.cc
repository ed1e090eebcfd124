// Runs the GGUF fuzz target without libFuzzer: seeded mutations (bytes, 8-byte lengths, cuts) of a good file.
//   gguf_fuzz [RUNS [SEED]]     RUNS with an s, like 600s: for that many seconds
#include <cstring>
#include <string>

#include "tests/fuzz/fuzz_loop.h"
#include "tests/unit/replica/model/gguf_writer.h"

namespace {

using kvring::Random;
using kvring::replica::GgufValueType;
using kvring::replica::GgufWriter;
using kvring::replica::TensorType;

std::string GoodFile() {
  GgufWriter w;
  w.Header(3, 6);
  w.Key("general.architecture", GgufValueType::kString).PutString("llama");
  w.Key("llama.block_count", GgufValueType::kUint32).Put<uint32_t>(1);
  w.Key("llama.attention.head_count", GgufValueType::kUint32).Put<uint32_t>(2);
  w.Array("tokenizer.ggml.tokens", GgufValueType::kString, 2).PutString("a").PutString("bc");
  w.Array("tokenizer.ggml.token_type", GgufValueType::kInt32, 2).Put<int32_t>(1).Put<int32_t>(6);
  w.Array("tokenizer.ggml.scores", GgufValueType::kFloat32, 2).Put<float>(1).Put<float>(2);
  w.Tensor("token_embd.weight", TensorType::kQ8_0, {32, 2}, 0);
  w.Tensor("a", TensorType::kQ4_K, {256, 1}, 96);
  w.Tensor("b", TensorType::kQ6_K, {256, 1}, 256);
  w.Align().Append(std::string(480, '\x35'));
  return {reinterpret_cast<const char*>(w.bytes().data()), w.size()};
}

void Mutate(std::string& bytes, Random& random) {
  constexpr uint64_t kNasty[] = {0,     1,          0x7fffffffffffffff, 0x8000000000000000,
                                 ~0ULL, 1ULL << 40, 1ULL << 32,         0xffffffff};
  switch (random.Below(4)) {
    case 0:
      bytes[random.Below(bytes.size())] = static_cast<char>(random.Next());
      break;
    case 1:
      bytes.resize(1 + random.Below(bytes.size()));
      break;
    default: {
      if (bytes.size() < 8) return;
      const uint64_t value =
          random.Below(2) == 0 ? kNasty[random.Below(std::size(kNasty))] : random.Below(300);
      std::memcpy(bytes.data() + random.Below(bytes.size() - 7), &value, random.Below(2) == 0 ? 8 : 4);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const FuzzPlan plan(std::span(argv, static_cast<size_t>(argc)).subspan(1), "20000");
  Random random(plan.seed);
  const std::string good = GoodFile();
  return RunFuzz(plan, random, [&](Random& r) {
    std::string bytes = good;
    for (uint64_t n = r.Below(4); n > 0; --n) Mutate(bytes, r);
    return bytes;
  });
}
