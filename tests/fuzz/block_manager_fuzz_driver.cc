// Runs the block manager's fuzz target without libFuzzer: seeded byte strings, half of them spliced
// from earlier ones. First the canary: a broken model must be noticed.
//   block_manager_fuzz [RUNS [SEED]]     RUNS with an s, like 600s: for that many seconds
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_loop.h"

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
  const FuzzPlan plan(std::span(argv, static_cast<size_t>(argc)).subspan(1), "4000");
  Random random(plan.seed);
  if (!CanarySings(random)) {
    std::fprintf(stderr, "a broken model was not noticed\n");
    return 1;
  }
  std::vector<Input> kept;
  return RunFuzz(plan, random, [&](Random& r) -> const Input& {
    Input input = kept.empty() || r.Below(2) == 0 ? Fresh(r) : Spliced(kept, r);
    if (input.size() > 6000) input.resize(6000);
    Input& place = kept.size() < kKept ? kept.emplace_back() : kept[r.Below(kKept)];
    return place = std::move(input);
  });
}
