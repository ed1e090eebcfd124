// The façade driven by hand: members, requests and time as the test says.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "common/random.h"
#include "router/router.h"

namespace kvring::router {

inline std::string Text(uint64_t seed, size_t bytes) {
  Random random(seed);
  std::string text(bytes, ' ');
  for (char& c : text) c = static_cast<char>('a' + random.Below(26));
  return text;
}

class RouterTest : public ::testing::Test {
 protected:
  void Start(const std::string& policy, int replicas, HealthRules health = {}) {
    router_ = Router::Create({.policy = policy, .seed = 3, .health = health});
    ids_.clear();
    for (int i = 0; i < replicas; ++i) Add("http://10.0.0." + std::to_string(i + 1) + ":8000", {"m"});
  }
  ReplicaId Add(const std::string& url, std::vector<std::string> models) {
    const ReplicaId id = router_->AddReplica({.url = url, .models = std::move(models)}, now_);
    router_->OnProbe(id, true, now_);
    ids_.push_back(id);
    return id;
  }

  struct Sent {
    RequestId id;
    Decision decision;
  };
  /// Keeps the prompt alive until the fixture ends.
  const PromptKey& Prompt(const std::string& text, std::string_view model = "m") {
    texts_.push_back(std::make_unique<std::string>(text));
    keys_.push_back(
        std::make_unique<PromptKey>(MakePromptKey({model, {}, {}}, std::string_view(*texts_.back()))));
    return *keys_.back();
  }
  Sent Ask(const PromptKey* prompt, std::vector<ReplicaId> excluded = {},
           std::optional<SessionKey> session = {}, std::string_view model = "m") {
    const RequestId id{++last_};
    const Decision d = router_->OnRequest(
        {.id = id, .model = model, .prompt = prompt, .session = session, .excluded = excluded}, now_);
    if (d.replica) router_->OnDispatch(id, now_);
    return {id, d};
  }
  void Finish(RequestId id, OutcomeClass outcome = OutcomeClass::kOk, int prompt = 0, int cached = 0) {
    CompletionReport report{.outcome = outcome};
    if (prompt > 0)
      report.usage = UsageReport{.prompt_tokens = prompt, .completion_tokens = 1, .cached_tokens = cached};
    router_->OnComplete(id, report, now_);
  }
  void Fail(RequestId id, OutcomeClass outcome, Duration retry_after = {}) {
    router_->OnAttemptFailed(id, {outcome, retry_after}, now_);
  }
  ReplicaView View(ReplicaId id) {
    for (const ReplicaView& view : router_->Replicas(now_)) {
      if (view.id == id) return view;
    }
    return {};
  }
  void ExpectAllGaugesZero() {
    for (const ReplicaView& view : router_->Replicas(now_)) {
      EXPECT_EQ(view.in_flight, 0);
      EXPECT_EQ(view.pending_prefill_tokens, 0);
    }
  }

  Instant now_{1'000'000'000};
  uint64_t last_ = 0;
  std::unique_ptr<Router> router_;
  std::vector<ReplicaId> ids_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::vector<std::unique_ptr<PromptKey>> keys_;
};

}  // namespace kvring::router
