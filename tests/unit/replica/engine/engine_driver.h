// EngineDriver: runs an engine and keeps what every request got, checking the order of its events on the way.
// Test only.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <optional>
#include <vector>

#include "common/random.h"
#include "replica/engine/engine.h"

namespace kvring::replica {

struct Answer {
  std::optional<EngineEvent::Admitted> admitted;
  std::vector<std::vector<TokenId>> choices;
  std::vector<std::vector<TokenLogprobs>> logprobs;
  std::vector<EngineEvent::PromptToken> prompt;
  std::vector<std::optional<FinishReason>> reasons;
  std::optional<EngineUsage> usage;
  absl::Status failure;
  std::vector<int64_t> token_steps;  // of choice 0
};

class EngineDriver {
 public:
  EngineDriver(Executor& executor, const EngineOptions& options) : engine(executor, options) {}

  absl::Status Add(const EngineRequest& request) {
    absl::Status status = engine.Add(request, now);
    if (status.ok()) {
      answers[request.id.value].choices.resize(request.n);
      answers[request.id.value].logprobs.resize(request.n);
      answers[request.id.value].reasons.resize(request.n);
    }
    return status;
  }

  StepReport Step() {
    const StepReport report = engine.Step(now);
    now = now + step_time;
    ++steps;
    preemptions += report.preemptions;
    Take();
    return report;
  }

  /// Steps until no request is left; every step must schedule something.
  void Run(int64_t step_limit = 100'000) {
    for (; engine.HasWork(); --step_limit) {
      ASSERT_GT(step_limit, 0) << "does not end";
      const StepReport report = Step();
      ASSERT_GT(report.prefill_tokens + report.decode_tokens, 0) << "an empty step while there is work";
    }
  }

  Answer RunOne(const EngineRequest& request) {
    EXPECT_TRUE(Add(request).ok());
    Run();
    return answers[request.id.value];
  }

  void Take() {
    std::vector<EngineEvent> events = engine.TakeEvents();
    for (; !events.empty(); events = engine.TakeEvents()) {  // Finish makes more
      for (const EngineEvent& event : events) {
        Answer& answer = answers[event.request.value];
        EXPECT_FALSE(answer.usage.has_value()) << "an event after the last";
        std::visit([&](const auto& what) { Handle(answer, event.request, what); }, event.what);
      }
    }
  }

  Engine engine;
  Instant now;
  Duration step_time = FromMillis(10);
  int64_t steps = 0;
  int64_t preemptions = 0;
  std::map<uint64_t, Answer> answers;
  /// The server's stop strings: a choice is finished when it has that many tokens; 0: never.
  std::map<uint64_t, size_t> finish_at;

 private:
  void Handle(Answer& answer, RequestId, const EngineEvent::Admitted& what) {
    EXPECT_FALSE(answer.admitted.has_value());
    answer.admitted = what;
  }
  void Handle(Answer& answer, RequestId, const EngineEvent::PromptToken& what) {
    answer.prompt.push_back(what);
  }
  void Handle(Answer& answer, RequestId id, const EngineEvent::Token& what) {
    EXPECT_TRUE(answer.admitted.has_value());
    EXPECT_FALSE(answer.reasons[what.choice].has_value()) << "a token after the choice's end";
    std::vector<TokenId>& tokens = answer.choices[what.choice];
    tokens.push_back(what.token);
    if (what.logprobs.has_value()) answer.logprobs[what.choice].push_back(*what.logprobs);
    if (what.choice == 0) answer.token_steps.push_back(steps);
    const auto stop = finish_at.find(id.value);
    if (stop != finish_at.end() && tokens.size() == stop->second) engine.Finish(id, what.choice);
  }
  void Handle(Answer& answer, RequestId, const EngineEvent::Finished& what) {
    EXPECT_FALSE(answer.reasons[what.choice].has_value());
    answer.reasons[what.choice] = what.reason;
  }
  void Handle(Answer& answer, RequestId, const EngineEvent::Done& what) {
    for (const auto& reason : answer.reasons) EXPECT_TRUE(reason.has_value());
    answer.usage = what.usage;
  }
  void Handle(Answer& answer, RequestId, const EngineEvent::Failed& what) {
    answer.failure = what.status;
    answer.usage = what.usage;
  }
};

inline std::vector<TokenId> RandomPrompt(uint64_t seed, int32_t length, int32_t vocab_size) {
  Random random(seed);
  std::vector<TokenId> tokens(length);
  for (TokenId& t : tokens) t = static_cast<TokenId>(random.Below(vocab_size));
  return tokens;
}

inline EngineRequest Greedy(uint64_t id, std::vector<TokenId> prompt, std::optional<int32_t> max_tokens) {
  EngineRequest request{.id = {id}, .prompt = std::move(prompt), .max_tokens = max_tokens};
  request.sampling.temperature = 0;
  return request;
}

}  // namespace kvring::replica
