// Runs the HTTP and SSE fuzz targets without libFuzzer: seeded mutations of the target's own good inputs,
// with the bytes that matter to both grammars more often than chance.
//   http_fuzz [RUNS [SEED]]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
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
  const long runs = argc > 1 ? std::atol(argv[1]) : 200'000;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  Random random(seed);
  const std::vector<std::string> seeds = FuzzSeeds();
  for (long run = 0; run < runs; ++run) {
    std::string bytes = seeds[random.Below(seeds.size())];
    bytes[0] = static_cast<char>(random.Next());
    for (uint64_t edits = random.Below(6); edits > 0; --edits) Mutate(bytes, seeds, random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%ld runs\n", runs);
  return 0;
}
