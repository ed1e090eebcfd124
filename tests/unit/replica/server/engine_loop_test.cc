#include "replica/server/engine_loop.h"

#include <gtest/gtest.h>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "sim/timed_executor.h"
#include "tests/unit/replica/model/text_fixture.h"

namespace kvring::replica {
namespace {

// Collects a request's events; Wait returns when it has ended.
class Recorder : public GenerationSink {
 public:
  void OnAdmitted(const AdmittedInfo& info) override {
    absl::MutexLock lock(&mutex_);
    admitted_ = info;
  }
  void OnDelta(const GenerationDelta& delta) override {
    absl::MutexLock lock(&mutex_);
    const auto index = static_cast<size_t>(delta.choice.index);
    if (texts_.size() <= index) texts_.resize(index + 1);
    if (reasons_.size() <= index) reasons_.resize(index + 1);
    EXPECT_TRUE(reasons_[index].empty()) << "a delta after the choice's end";
    texts_[index] += delta.choice.text;
    reasons_[index] += delta.choice.finish_reason;
    tokens_ += delta.tokens.size();
  }
  void OnDone(const DoneInfo& info) override {
    absl::MutexLock lock(&mutex_);
    EXPECT_FALSE(ended_);
    usage_ = info.usage;
    done_ends_ = info.block_end_bytes();
    ended_ = true;
  }
  void OnError(const openai::ApiError& error) override {
    absl::MutexLock lock(&mutex_);
    EXPECT_FALSE(ended_);
    error_ = error;
    ended_ = true;
  }
  void Wait() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&ended_));
  }

  absl::Mutex mutex_;
  AdmittedInfo admitted_;
  openai::UsageCounts usage_;
  std::vector<uint32_t> done_ends_;
  openai::ApiError error_;
  std::vector<std::string> texts_;
  std::vector<std::string> reasons_;
  size_t tokens_ = 0;
  bool ended_ = false;
};

class EngineLoopTest : public ::testing::Test {
 protected:
  void SetUp() override {
    KVRING_SKIP_WITHOUT_MODEL();
    model_ = ServedModel::Load(ModelPath(), "m").value();
    executor_ =
        std::make_unique<sim::TimedExecutor>(ExecutorLimits{.vocab_size = model_->tokenizer().vocab_size(),
                                                            .context_length = 512,
                                                            .block_size = 16,
                                                            .num_blocks = 64,
                                                            .kv_bytes_per_token = 1},
                                             sim::StepCostModel{});
    loop_ = std::make_unique<EngineLoop>(*executor_, EngineOptions{}, *model_, metrics_);
  }

  GenerationPlan Plan(std::string body, openai::Route route = openai::Route::kCompletions) {
    openai::GenerationRequest request;
    const auto error = openai::ReadGenerationRequest(route, body, request);
    EXPECT_FALSE(error.has_value()) << error->message;
    GenerationPlan plan;
    const auto refused = PlanGeneration(*model_, std::move(request), plan);
    EXPECT_FALSE(refused.has_value()) << refused->message;
    return plan;
  }

  std::shared_ptr<Recorder> RunToEnd(const std::string& body) {
    auto sink = std::make_shared<Recorder>();
    loop_->Submit(Plan(body), sink);
    sink->Wait();
    return sink;
  }

  MetricRegistry metrics_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<sim::TimedExecutor> executor_;
  std::unique_ptr<EngineLoop> loop_;
};

std::string Repeated(int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += " word" + std::to_string(i);
  return text;
}

TEST_F(EngineLoopTest, Request_IsAdmittedAnsweredAndCounted) {
  const auto sink = RunToEnd(R"({"prompt":"hello","max_tokens":5,"ignore_eos":true})");
  EXPECT_EQ(sink->usage_.completion_tokens, 5);
  EXPECT_EQ(sink->usage_.prompt_tokens, 1);
  EXPECT_EQ(sink->tokens_, 5u);
  EXPECT_EQ(sink->reasons_, (std::vector<std::string>{"length"}));
}

// USG-08: the same prompt again reuses its whole blocks but for the last token.
TEST_F(EngineLoopTest, SecondTime_BlocksAreFound_USG_08) {
  const std::string body = R"({"prompt":")" + Repeated(40) + R"(","max_tokens":1,"ignore_eos":true})";
  const auto first = RunToEnd(body);
  const auto second = RunToEnd(body);
  EXPECT_EQ(first->admitted_.cached_tokens, 0);
  EXPECT_EQ(second->admitted_.cached_tokens, (second->admitted_.prompt_tokens - 1) / 16 * 16);
  EXPECT_EQ(second->usage_.cached_tokens, second->admitted_.cached_tokens);
  EXPECT_EQ(static_cast<int>(second->admitted_.block_end_bytes.size()), second->admitted_.prompt_tokens / 16);
}

// PFX-05: salts separate.
TEST_F(EngineLoopTest, Salt_Separates_PFX_05) {
  const auto body = [](const std::string& salt) {
    return R"({"prompt":")" + Repeated(40) + R"(","max_tokens":1,"ignore_eos":true)" + salt + "}";
  };
  EXPECT_EQ(RunToEnd(body(R"(,"cache_salt":"A")"))->usage_.cached_tokens, 0);
  EXPECT_GT(RunToEnd(body(R"(,"cache_salt":"A")"))->usage_.cached_tokens, 0);
  EXPECT_EQ(RunToEnd(body(R"(,"cache_salt":"B")"))->usage_.cached_tokens, 0);
  EXPECT_EQ(RunToEnd(body(""))->usage_.cached_tokens, 0);
  EXPECT_GT(RunToEnd(body(""))->usage_.cached_tokens, 0);
}

// SMP-01: a stop string ends the choice in the step that completed it; its text is not sent.
TEST_F(EngineLoopTest, StopString_EndsExactly_SMP_01) {
  const std::string prompt = R"({"prompt":"hello","max_tokens":40,"ignore_eos":true)";
  const auto whole = RunToEnd(prompt + "}");
  // The timed executor's tokens depend on the sequence id: ask for a stop of any kind that is sure to come.
  std::string stops;
  for (char c = 'a'; c <= 'p'; ++c) stops += std::string(stops.empty() ? "" : ",") + "\"" + c + "\"";
  const auto stopped = RunToEnd(prompt + R"(,"stop":[)" + stops + "]}");
  EXPECT_EQ(stopped->reasons_.at(0), "stop");
  EXPECT_LT(stopped->usage_.completion_tokens, 40);
  EXPECT_EQ(stopped->texts_.at(0).find_first_of("abcdefghijklmnop"), std::string::npos);
  EXPECT_EQ(whole->reasons_.at(0), "length");
}

TEST_F(EngineLoopTest, BatchedPromptsAndChoices_AreOneAnswer_USG_05) {
  const auto sink =
      RunToEnd(R"({"prompt":["one two","three"],"n":2,"max_tokens":3,"ignore_eos":true,"seed":9})");
  EXPECT_EQ(sink->texts_.size(), 4u);
  EXPECT_EQ(sink->usage_.completion_tokens, 12);
  EXPECT_EQ(sink->usage_.prompt_tokens, 3);
}

// SMP-09, KVB-14: what can never fit is refused at once, by name.
TEST_F(EngineLoopTest, TooLong_Is400_SMP_09_KVB_14) {
  const auto sink = RunToEnd(R"({"prompt":"hello","max_tokens":512})");
  EXPECT_EQ(sink->error_.http_status, 400);
  EXPECT_EQ(sink->error_.code, "context_length_exceeded");
  EXPECT_EQ(sink->error_.param, "prompt");
  EXPECT_NE(sink->error_.message.find("512"), std::string::npos);
  EXPECT_EQ(RunToEnd(R"({"prompt":"hello","max_tokens":511,"ignore_eos":true})")->usage_.completion_tokens,
            511);
}

// SMP-10: cut only when asked to, and then said so; a cut prompt is no prefix of anything.
TEST_F(EngineLoopTest, Truncation_KeepsTheEnd_UsageTellsTheSpan_SMP_10) {
  std::string ids;
  for (int i = 0; i < 600; ++i) ids += (i == 0 ? "" : ",") + std::to_string(1000 + i);
  const std::string prompt = R"({"prompt":[)" + ids + R"(],"max_tokens":2,"ignore_eos":true)";
  EXPECT_EQ(RunToEnd(prompt + "}")->error_.code, "context_length_exceeded");
  const GenerationPlan plan = Plan(prompt + R"(,"truncate_prompt_tokens":400})");
  EXPECT_EQ(plan.prompts[0].request.prompt.front(), 1200);
  EXPECT_EQ(plan.prompts[0].request.prompt.back(), 1599);
  const auto sink = RunToEnd(prompt + R"(,"truncate_prompt_tokens":400})");
  EXPECT_EQ(sink->usage_.prompt_tokens, 400);
  EXPECT_EQ(sink->usage_.truncated_tokens, 200);
  EXPECT_TRUE(sink->admitted_.block_end_bytes.empty());
  EXPECT_TRUE(sink->done_ends_.empty());
  std::string usage;
  openai::AppendUsage(usage, sink->usage_);
  EXPECT_NE(usage.find(R"("truncated":true,"kept_span":[200,600])"), std::string::npos) << usage;
  const auto whole = RunToEnd(R"({"prompt":"hello","max_tokens":1,"truncate_prompt_tokens":400})");
  EXPECT_EQ(whole->usage_.truncated_tokens, 0);
}

// SCH-07: without max_tokens the answer may be as long as the context lets it.
TEST_F(EngineLoopTest, NoMaxTokens_FillsTheContext_SCH_07) {
  const auto sink = RunToEnd(R"({"prompt":"hello","ignore_eos":true})");
  EXPECT_EQ(sink->usage_.completion_tokens, 511);
  EXPECT_EQ(sink->reasons_.at(0), "length");
}

// What a listener heard last, for tests that wait for it.
class Listener final : public EngineLoop::StepListener {
 public:
  void OnCacheSnapshot(const CacheEventBatch& snapshot) override {
    absl::MutexLock lock(&mutex_);
    snapshot_ = snapshot;
    next_ = snapshot.first_sequence;
  }
  void OnStep(const LoopLoad& load, const CacheEventBatch& events) override {
    absl::MutexLock lock(&mutex_);
    used_ = load.engine.kv_used_tokens;
    running_ = load.engine.running + load.engine.waiting;
    if (events.events.empty()) return;
    follows_ = follows_ && events.first_sequence == next_;
    next_ = events.first_sequence + events.events.size();
  }

  absl::Mutex mutex_;
  std::optional<CacheEventBatch> snapshot_;
  uint64_t next_ = 0;
  bool follows_ = true;  // each batch began where what was heard before it ended
  int64_t used_ = -1;
  int32_t running_ = -1;
};

// PRX-06: a cancelled request gives its blocks back; its sink hears nothing more.
TEST_F(EngineLoopTest, Cancel_FreesBlocks_PRX_06) {
  Listener listener;
  const auto listening = loop_->Listen(listener);
  std::vector<GenerationId> ids;
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 20; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    ids.push_back(loop_->Submit(Plan(R"({"prompt":"hello","ignore_eos":true})"), sinks.back()));
  }
  for (GenerationId id : ids) loop_->Cancel(id);
  absl::MutexLock lock(&listener.mutex_);
  // Without in_flight, a report from before the last of them came would do.
  auto idle = [&] { return loop_->in_flight() == 0 && listener.used_ == 0 && listener.running_ == 0; };
  listener.mutex_.Await(absl::Condition(&idle));
}

// Who listens late hears of what is held, at once and before all else, though the engine is idle; then goes
// on from there.
TEST_F(EngineLoopTest, Listen_WarmCache_SnapshotThenWhatFollows_PFX_11) {
  const std::string body = R"({"prompt":")" + Repeated(40) + R"(","max_tokens":1,"ignore_eos":true})";
  RunToEnd(body);
  const int blocks = RunToEnd(body)->usage_.cached_tokens / loop_->block_size();
  ASSERT_GT(blocks, 0);
  Listener listener;
  const auto listening = loop_->Listen(listener);
  {
    absl::MutexLock lock(&listener.mutex_);
    auto greeted = [&] { return listener.snapshot_.has_value(); };
    listener.mutex_.Await(absl::Condition(&greeted));
    EXPECT_GE(static_cast<int>(listener.snapshot_->events.size()), blocks);
    for (const CacheEvent& event : listener.snapshot_->events)
      EXPECT_EQ(event.kind, CacheEvent::Kind::kStored);
  }
  RunToEnd(R"({"prompt":"another )" + Repeated(40) + R"(","max_tokens":1,"ignore_eos":true})");
  absl::MutexLock lock(&listener.mutex_);
  auto heard = [&] { return listener.next_ > listener.snapshot_->first_sequence; };
  listener.mutex_.Await(absl::Condition(&heard));
  EXPECT_TRUE(listener.follows_);
}

TEST_F(EngineLoopTest, ResetCache_ForgetsPrefixes_TellsHowManyTokens) {
  const std::string body = R"({"prompt":")" + Repeated(40) + R"(","max_tokens":1,"ignore_eos":true,)" +
                           R"("cache_retention":{"class":"pinned","ttl_s":60}})";
  RunToEnd(body);
  const int cached = RunToEnd(body)->usage_.cached_tokens;
  ASSERT_GT(cached, 0);
  absl::Notification done;
  absl::StatusOr<int64_t> dropped;
  loop_->ResetCache([&](absl::StatusOr<int64_t> tokens) {
    dropped = std::move(tokens);
    done.Notify();
  });
  done.WaitForNotification();
  ASSERT_TRUE(dropped.ok());
  EXPECT_GE(*dropped, cached);
  EXPECT_EQ(RunToEnd(body)->usage_.cached_tokens, 0);
}

TEST_F(EngineLoopTest, Plan_CarriesTenantPriorityAndRetention) {
  const EngineRequest request =
      Plan(R"({"prompt":"x","priority":7,"cache_salt":"acme","cache_retention":{"class":"high","ttl_s":9}})")
          .prompts[0]
          .request;
  EXPECT_EQ(request.priority, 7);
  EXPECT_EQ(request.tenant.value, HashName("acme"));
  EXPECT_EQ(request.retention.retention, Retention::kHigh);
  EXPECT_EQ(request.retention.ttl, std::chrono::seconds(9));
  EXPECT_EQ(Plan(R"({"prompt":"x"})").prompts[0].request.tenant.value, 0u);
}

// The gauges tell what the engine holds, and the counters what it did: once per request.
TEST_F(EngineLoopTest, Metrics_TellHitsOnceAndBlocksHeld_USG_07) {
  const std::string body = R"({"prompt":")" + Repeated(40) + R"(","max_tokens":1,"ignore_eos":true})";
  const int prompt = RunToEnd(body)->usage_.prompt_tokens;
  const int cached = RunToEnd(body)->usage_.cached_tokens;
  absl::Notification turn_over;  // and with it the metrics of the step that ended the request
  loop_->ResetCache([&](const absl::StatusOr<int64_t>&) { turn_over.Notify(); });
  turn_over.WaitForNotification();
  const std::string exposed = metrics_.Expose();
  for (const std::string& line : {"kvring_replica_prefix_query_tokens_total " + std::to_string(2 * prompt),
                                  "kvring_replica_prefix_hit_tokens_total " + std::to_string(cached),
                                  std::string("kvring_replica_prefix_full_hits_total 1"),
                                  std::string("kvring_replica_double_frees_total 0")}) {
    EXPECT_NE(exposed.find(line + "\n"), std::string::npos) << line << "\n" << exposed;
  }
  EXPECT_NE(exposed.find("kvring_replica_kv_used_tokens "), std::string::npos);
}

TEST_F(EngineLoopTest, End_TellsRunningRequests) {
  auto sink = std::make_shared<Recorder>();
  loop_->Submit(Plan(R"({"prompt":"hello","max_tokens":300,"n":60,"ignore_eos":true})"), sink);
  loop_.reset();
  sink->Wait();
  EXPECT_TRUE(sink->error_.http_status == 503 || sink->usage_.completion_tokens == 300 * 60);
}

TEST_F(EngineLoopTest, Plan_RefusesWhatTheModelCannotDo_MOD_11) {
  openai::GenerationRequest request;
  std::string body = R"({"model":"other","messages":[{"role":"user","content":"x"}]})";
  ASSERT_FALSE(openai::ReadGenerationRequest(openai::Route::kChat, body, request).has_value());
  GenerationPlan plan;
  EXPECT_EQ(PlanGeneration(*model_, request, plan)->code, "model_not_found");
  request.model = "default";
  EXPECT_FALSE(PlanGeneration(*model_, request, plan).has_value());
  request.messages[0].opaque_type = "image_url";
  EXPECT_EQ(PlanGeneration(*model_, request, plan)->param, "messages[0].content");
}

}  // namespace
}  // namespace kvring::replica
