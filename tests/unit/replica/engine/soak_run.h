// SoakRun: mixed requests (shared stems, n > 1, seeds, penalties, prompt log probabilities, tenants,
// priorities, retention, stop strings, cancellations, cache resets) on a pool that is far too small.
// Afterwards all blocks are free and every answer equals that of the same request run alone without a cache.
// For any executor whose answers depend on the history alone. Test only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/unit/replica/engine/engine_driver.h"

namespace kvring::replica {

struct SoakShape {
  uint64_t requests = 2000;
  uint64_t seed = 1;
  int32_t longest_stem = 24;
  int32_t longest_tail = 12;
  int32_t longest_output = 30;
  int32_t batch_tokens = 24;
  int32_t max_running = 10;
};

class SoakRun {
 public:
  explicit SoakRun(const SoakShape& shape) : shape_(shape), random_(shape.seed) {}

  /// `executor` has the tiny pool.
  void Run(Executor& executor, const HostTierOptions& host_tier = {}) {
    vocabulary_ = executor.limits().vocab_size;
    EngineDriver driver(
        executor, {.scheduler = {.max_batch_tokens = shape_.batch_tokens, .max_running = shape_.max_running},
                   .host_tier = host_tier});
    uint64_t id = 1;
    while (id <= shape_.requests || driver.engine.HasWork()) {
      while (id <= shape_.requests && driver.engine.Load().waiting < 12 && random_.Below(3) != 0)
        Add(driver, id++);
      driver.Step();
      Disturb(driver, id);
      if (driver.steps % 64 == 0) {
        ASSERT_EQ(driver.engine.CheckIntegrity(), "");
      }
    }
    EXPECT_EQ(driver.engine.Load().kv_used_tokens, 0);
    EXPECT_EQ(driver.engine.Load().pending_prefill_tokens, 0);
    EXPECT_EQ(driver.engine.Load().waiting, 0);
    EXPECT_EQ(driver.engine.CheckIntegrity(), "");
    EXPECT_EQ(driver.engine.cache_stats().double_frees, 0u);
    cache = driver.engine.cache_stats();
    scheduler = driver.engine.scheduler_stats();
    answers_ = std::move(driver.answers);
    finish_at_ = std::move(driver.finish_at);
  }

  /// `executor` has room for any request alone.
  void Compare(Executor& executor) {
    EngineDriver alone(executor,
                       {.scheduler = {.max_batch_tokens = 256, .max_running = 16}, .prefix_caching = false});
    alone.finish_at = finish_at_;
    for (const auto& [id, request] : requests_) {
      if (cancelled.contains(id)) continue;
      ExpectEqual(answers_[id], alone.RunOne(request), id);
    }
  }

  BlockManagerStats cache;
  SchedulerStats scheduler;
  std::set<uint64_t> cancelled;

 private:
  int32_t Below(int32_t bound) { return static_cast<int32_t>(random_.Below(bound)); }
  bool OneIn(uint64_t n) { return random_.Below(n) == 0; }

  void Add(EngineDriver& driver, uint64_t id) {
    const EngineRequest request = MixedRequest(id);
    if (driver.Add(request).ok()) requests_.emplace(id, request);
    if (OneIn(6)) driver.finish_at[id] = 1 + random_.Below(8);
  }

  void Disturb(EngineDriver& driver, uint64_t next) {
    const uint64_t victim = next - random_.Below(std::min<uint64_t>(next, 30));
    if (OneIn(20) && driver.engine.Cancel({victim}).has_value()) cancelled.insert(victim);
    if (OneIn(500)) driver.engine.ClearCache();
  }

  // Prompts that share stems of several lengths, like turns of conversations.
  std::vector<TokenId> MixedPrompt() {
    std::vector<TokenId> prompt = RandomPrompt(random_.Below(6), Below(shape_.longest_stem), vocabulary_);
    const std::vector<TokenId> tail =
        RandomPrompt(random_.Next(), 1 + Below(shape_.longest_tail), vocabulary_);
    prompt.insert(prompt.end(), tail.begin(), tail.end());
    return prompt;
  }

  EngineRequest MixedRequest(uint64_t id) {
    EngineRequest request{.id = {id}, .prompt = MixedPrompt()};
    request.root = MakeCacheRoot({.model = "m", .salt = OneIn(3) ? "x" : ""});
    request.tenant = {random_.Below(3)};
    request.max_tokens = Below(shape_.longest_output);
    if (OneIn(4)) request.n = 1 + Below(4);
    if (OneIn(2)) request.eos_tokens = {3, 4};
    request.priority = OneIn(10) ? 1 : 0;
    request.prompt_logprobs = OneIn(10);
    if (OneIn(3)) request.retention = {static_cast<Retention>(Below(4)), {}};
    if (request.retention.retention >= Retention::kHigh) request.retention.ttl = FromMillis(1 + Below(500));
    SamplingParams& p = request.sampling;
    p.seed = random_.Next();
    p.temperature = OneIn(3) ? 0.0f : 0.9f;
    p.top_p = OneIn(3) ? 0.8f : 1.0f;
    p.frequency_penalty = OneIn(4) ? 0.7f : 0.0f;
    p.min_tokens = Below(8);
    if (request.prompt_logprobs || OneIn(5)) p.logprobs = 2;
    return request;
  }

  static void ExpectEqual(const Answer& got, const Answer& alone, uint64_t id) {
    EXPECT_EQ(got.choices, alone.choices) << id;
    EXPECT_EQ(got.reasons, alone.reasons) << id;
    EXPECT_EQ(got.usage->completion_tokens, alone.usage->completion_tokens) << id;
    ASSERT_EQ(got.prompt.size(), alone.prompt.size()) << id;
    for (size_t i = 1; i < got.prompt.size(); ++i) {
      EXPECT_EQ(got.prompt[i].logprobs->logprob, alone.prompt[i].logprobs->logprob) << id;
    }
    for (size_t c = 0; c < got.logprobs.size(); ++c) {
      ASSERT_EQ(got.logprobs[c].size(), alone.logprobs[c].size()) << id;
      for (size_t i = 0; i < got.logprobs[c].size(); ++i) {
        EXPECT_EQ(got.logprobs[c][i].logprob, alone.logprobs[c][i].logprob) << id;
      }
    }
  }

  SoakShape shape_;
  Random random_;
  int32_t vocabulary_ = 0;
  std::map<uint64_t, EngineRequest> requests_;
  std::map<uint64_t, Answer> answers_;
  std::map<uint64_t, size_t> finish_at_;
};

}  // namespace kvring::replica
