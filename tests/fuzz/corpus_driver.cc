// Runs a fuzz target without libFuzzer: seeded mutations of the files of a corpus, with pieces of the other
// files and of the grammars in question more often than chance.
//   x_fuzz CORPUS [RUNS [SEED]]        RUNS with an s, like 600s: for that many seconds
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_loop.h"

namespace {

using kvring::Random;

std::vector<std::string> ReadCorpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> files;
  for (const auto& path : paths) {
    std::ifstream in(path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (files.back().empty()) files.back() = " ";
  }
  return files;
}

void Mutate(std::string& bytes, const std::vector<std::string>& corpus, Random& random) {
  static constexpr const char* kPieces[] = {"{%",
                                            "%}",
                                            "{{",
                                            "}}",
                                            "{#",
                                            "-%}",
                                            "<|end|>",
                                            "<s>",
                                            "\xE2\x96\x81",
                                            "\xC3",
                                            "\xF0",
                                            "\xFF",
                                            " ",
                                            "  ",
                                            "\r\n",
                                            "'",
                                            "\"",
                                            "[",
                                            "]",
                                            "{",
                                            "}",
                                            "null",
                                            "true",
                                            "-1",
                                            "1e999",
                                            "0",
                                            "123",
                                            "e\xCC\x81",
                                            "\xED\xA0\x80",
                                            "for ",
                                            "if ",
                                            " in ",
                                            "range(9)",
                                            "|tojson",
                                            "messages",
                                            "\\u0",
                                            "~",
                                            "<0x0A>",
                                            "merges",
                                            "99999999999999999999"};
  const size_t at = random.Below(bytes.size());
  switch (random.Below(6)) {
    case 0:
      bytes[at] = static_cast<char>(random.Next());
      break;
    case 1:
      bytes.erase(at, 1 + random.Below(16));
      break;
    case 2: {
      const std::string& other = corpus[random.Below(corpus.size())];
      bytes.insert(at, other.substr(random.Below(other.size()), random.Below(60)));
      break;
    }
    case 3: {
      const size_t digit = bytes.find_first_of("0123456789", at);
      if (digit != std::string::npos) bytes.replace(digit, 1, std::to_string(random.Below(40)));
      break;
    }
    case 4:
      bytes.insert(at, bytes.substr(random.Below(bytes.size()), random.Below(60)));
      break;
    default:
      bytes.insert(at, kPieces[random.Below(std::size(kPieces))]);
  }
  if (bytes.empty()) bytes = "x";
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s CORPUS [RUNS|SECONDSs [SEED]]\n", argv[0]);
    return 2;
  }
  const FuzzPlan plan(std::span(argv, static_cast<size_t>(argc)).subspan(2), "20000");
  Random random(plan.seed);
  const std::vector<std::string> corpus = ReadCorpus(argv[1]);
  return RunFuzz(plan, random, [&](Random& r) {
    std::string bytes = corpus[r.Below(corpus.size())];
    for (uint64_t edits = r.Below(8); edits > 0; --edits) Mutate(bytes, corpus, r);
    return bytes;
  });
}
