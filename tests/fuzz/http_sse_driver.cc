// Runs the HTTP and SSE fuzz targets without libFuzzer: seeded mutations of the target's own good inputs,
// with the bytes that matter to both grammars more often than chance.
//   http_fuzz [RUNS [SEED]]     RUNS with an s, like 600s: for that many seconds
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_loop.h"

std::vector<std::string> FuzzSeeds();

namespace {

using kvring::Random;

void Mutate(std::string& bytes, const std::vector<std::string>& seeds, Random& random) {
  constexpr std::string_view kPieces[] = {"\r\n",
                                          "\n",
                                          "\r",
                                          "\r\n\r\n",
                                          ":",
                                          " ",
                                          "0",
                                          "data:",
                                          "event: ",
                                          "Content-Length: 5\r\n",
                                          "Transfer-Encoding: chunked\r\n",
                                          ";",
                                          "\xEF\xBB\xBF",
                                          std::string_view("\0", 1),
                                          "ffffffffffffffff"};
  const size_t at = random.Below(bytes.size());
  switch (random.Below(5)) {
    case 0:
      bytes[at] = static_cast<char>(random.Next());
      break;
    case 1:
      bytes.erase(at, 1 + random.Below(8));
      break;
    case 2: {
      const std::string& other = seeds[random.Below(seeds.size())];
      bytes.insert(at, other.substr(random.Below(other.size()), random.Below(40)));
      break;
    }
    default:
      bytes.insert(at, kPieces[random.Below(std::size(kPieces))]);
  }
  if (bytes.empty()) bytes = "x";
}

}  // namespace

int main(int argc, char** argv) {
  const FuzzPlan plan(std::span(argv, static_cast<size_t>(argc)).subspan(1), "200000");
  Random random(plan.seed);
  const std::vector<std::string> seeds = FuzzSeeds();
  return RunFuzz(plan, random, [&](Random& r) {
    std::string bytes = seeds[r.Below(seeds.size())];
    bytes[0] = static_cast<char>(r.Next());
    for (uint64_t edits = r.Below(6); edits > 0; --edits) Mutate(bytes, seeds, r);
    return bytes;
  });
}
