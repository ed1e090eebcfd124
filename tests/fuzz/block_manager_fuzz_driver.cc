// Runs the block manager's fuzz target without libFuzzer: seeded byte strings, half of them spliced
// from earlier ones. First the canary: a broken model must be noticed.
//   block_manager_fuzz [RUNS [SEED [SECONDS]]]     SECONDS: runs until they are over, whatever RUNS says
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
std::string RunBlockManagerTrial(const uint8_t* data, size_t size, bool broken_model);

namespace {

using kvring::Random;
using Input = std::vector<uint8_t>;

constexpr size_t kKept = 64;

Input Fresh(Random& random) {
  Input input(1 + random.Below(3000));
  for (uint8_t& byte : input) byte = static_cast<uint8_t>(random.Next());
  return input;
}

Input Spliced(const std::vector<Input>& kept, Random& random) {
  Input input = kept[random.Below(kept.size())];
  const Input& other = kept[random.Below(kept.size())];
  input.resize(1 + random.Below(input.size()));
  input.insert(input.end(), other.begin() + static_cast<ptrdiff_t>(random.Below(other.size())), other.end());
  for (uint64_t edits = random.Below(8); edits > 0; --edits)
    input[random.Below(input.size())] = static_cast<uint8_t>(random.Next());
  return input;
}

bool CanarySings(Random& random) {
  for (int i = 0; i < 200; ++i) {
    const Input input = Fresh(random);
    if (!RunBlockManagerTrial(input.data(), input.size(), /*broken_model=*/true).empty()) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const long runs = argc > 1 ? std::atol(argv[1]) : 4000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  const std::chrono::seconds limit(argc > 3 ? std::atol(argv[3]) : 0);
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  if (!CanarySings(random)) {
    std::fprintf(stderr, "a broken model was not noticed\n");
    return 1;
  }
  std::vector<Input> kept;
  const auto end = std::chrono::steady_clock::now() + limit;
  long done = 0;
  for (; limit.count() > 0 ? std::chrono::steady_clock::now() < end : done < runs; ++done) {
    Input input = kept.empty() || random.Below(2) == 0 ? Fresh(random) : Spliced(kept, random);
    if (input.size() > 6000) input.resize(6000);
    LLVMFuzzerTestOneInput(input.data(), input.size());
    if (kept.size() < kKept) {
      kept.push_back(std::move(input));
    } else {
      kept[random.Below(kKept)] = std::move(input);
    }
  }
  std::printf("%ld runs\n", done);
  return 0;
}
