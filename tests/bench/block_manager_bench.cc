// Cost of the block manager's operations at 10^4, 10^5 and 10^6 blocks, in one run, as ratios: eviction and
// look-up are O(1) (a hundred times more blocks would otherwise cost a hundred times more); what grows is the
// share of about eight memory accesses per block that miss the CPU's caches. Each
// operation handles a prompt of 8 blocks; figures are nanoseconds per block, medians of several rounds.
//   block_manager_bench [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <vector>

#include "common/random.h"
#include "replica/kv/block_manager.h"

namespace {

using kvring::Random;
using kvring::TokenId;
using namespace kvring::replica;

constexpr int32_t kBlockSize = 16;
constexpr int32_t kPromptBlocks = 8;
constexpr int kPromptsPerRound = 4000;

std::vector<TokenId> PromptOf(uint64_t number) {
  Random random(number);
  std::vector<TokenId> tokens(kPromptBlocks * kBlockSize + 1);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Below(50'000));
  return tokens;
}

class Pool {
 public:
  Pool(int32_t blocks, Retention retention)
      : retention_{retention, std::chrono::hours(1)},
        manager_({.num_blocks = blocks, .block_size = kBlockSize}) {
    // Full of cached prompts, in an order that has nothing to do with that of the blocks.
    for (; manager_.free_blocks() > kPromptBlocks; ++next_) Serve(PromptOf(next_));
    for (uint64_t i = 0; i < next_; ++i) Serve(PromptOf(Random(i).Below(next_)));
  }

  /// Prompts never seen: each block evicts one.
  double MissNs() {
    std::vector<std::vector<TokenId>> prompts;
    for (int i = 0; i < kPromptsPerRound; ++i) prompts.push_back(PromptOf(next_++));
    return Time(prompts);
  }
  /// Prompts in the cache.
  double HitNs(uint64_t round) {
    std::vector<std::vector<TokenId>> prompts;
    const uint64_t held = manager_.total_blocks() / (kPromptBlocks + 1);
    for (int i = 0; i < kPromptsPerRound; ++i)
      prompts.push_back(PromptOf(next_ - 1 - Random(round * 77'777 + i).Below(held / 2)));
    return Time(prompts);
  }

 private:
  void Serve(const std::vector<TokenId>& prompt) {
    BlockTable table{.retention = retention_};
    manager_.Admit(table, {.tokens = prompt, .max_cached_tokens = kPromptBlocks * kBlockSize});
    manager_.Commit(table, prompt, static_cast<int32_t>(prompt.size()));
    manager_.Release(table);
  }
  double Time(const std::vector<std::vector<TokenId>>& prompts) {
    const auto begin = std::chrono::steady_clock::now();
    for (const std::vector<TokenId>& prompt : prompts) Serve(prompt);
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - begin;
    return elapsed.count() / (kPromptBlocks * prompts.size());
  }

  CacheRetention retention_;
  BlockManager manager_;
  uint64_t next_ = 0;
};

double Median(int rounds, const std::function<double(int)>& measure) {
  std::vector<double> values;
  for (int round = 0; round < rounds; ++round) values.push_back(measure(round));
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Compare(const char* name, Retention retention, int rounds) {
  std::vector<double> misses;
  std::vector<double> hits;
  for (const int32_t blocks : {10'000, 100'000, 1'000'000}) {
    Pool pool(blocks, retention);
    misses.push_back(Median(rounds, [&](int) { return pool.MissNs(); }));
    hits.push_back(Median(rounds, [&](int round) { return pool.HitNs(round); }));
  }
  for (const auto& [what, ns] : {std::pair("evict", misses), std::pair("hit", hits)}) {
    std::printf("%-22s %-6s %8.0f %8.0f %8.0f %8.2f %8.2f\n", name, what, ns[0], ns[1], ns[2], ns[2] / ns[0],
                ns[2] / ns[1]);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  std::printf("%-22s %-6s %8s %8s %8s %8s %8s\n", "ns per block", "", "10^4", "10^5", "10^6", "6:4", "6:5");
  Compare("normal", Retention::kNormal, rounds);
  Compare("high, with deadline", Retention::kHigh, rounds);
}
