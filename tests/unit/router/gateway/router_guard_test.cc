#include "router/gateway/router_guard.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "common/runtime/clock.h"

namespace kvring::router {
namespace {

#ifdef __SANITIZE_THREAD__
constexpr int kOperations = 1'000;
#else
constexpr int kOperations = 10'000;
#endif
constexpr int kThreads = 64;

// One thread's random life: requests begin, end, abort; members come and go; events and ticks arrive.
class Worker {
 public:
  Worker(RouterGuard& guard, std::atomic<uint64_t>& next_id, uint64_t seed, uint64_t replicas)
      : guard_(guard), next_id_(next_id), random_(seed), replicas_(replicas) {}

  void Run() {
    for (int i = 0; i < kOperations; ++i) Step();
  }
  uint64_t requests() const { return requests_; }

 private:
  void Step() {
    const uint64_t kind = random_.Below(100);
    if (kind < 90) return Request();
    const Instant now = Now();
    guard_.With([&](Router& router) {
      const std::string url = absl::StrCat("http://10.0.0.", random_.Below(replicas_), ":80");
      if (kind < 94) {
        const ReplicaId id = router.AddReplica({.url = url, .kv_tokens = 4096}, now);
        router.OnProbe(id, true, now);
      } else if (kind < 96) {
        if (const auto view = router.FindReplica(url)) router.RemoveReplica(view->id, now);
      } else if (kind < 98) {
        router.Tick(now);
      } else {
        (void)router.Replicas(now);
      }
    });
  }

  void Request() {
    ++requests_;
    const std::string text(64 + random_.Below(8) * 256, static_cast<char>('a' + random_.Below(6)));
    const PromptKey prompt = MakePromptKey({.model = "m"}, text);
    const RequestId id{next_id_.fetch_add(1)};
    const bool placed = guard_.With([&](Router& router) {
      const Decision decision = router.OnRequest({.id = id, .prompt = &prompt}, Now());
      if (decision.replica) router.OnDispatch(id, Now());
      return decision.replica.has_value();
    });
    if (random_.Below(8) == 0) std::this_thread::yield();  // requests overlap also on a busy machine
    if (placed && random_.Below(2) == 0) guard_.With([&](Router& router) { router.OnFirstToken(id, Now()); });
    const auto outcome = !placed                 ? OutcomeClass::kRefused
                         : random_.Below(4) == 0 ? OutcomeClass::kClientAbort
                                                 : OutcomeClass::kOk;
    guard_.With([&](Router& router) { router.OnComplete(id, {.outcome = outcome}, Now()); });
  }

  RouterGuard& guard_;
  std::atomic<uint64_t>& next_id_;
  Random random_;
  const uint64_t replicas_;
  uint64_t requests_ = 0;
};

// With a bound of one request a replica, ends of waiting race with releases: who is released is not told
// here, so it ends once, whatever it was at that moment.
class GuardUnder : public testing::TestWithParam<int> {};

TEST_P(GuardUnder, POL18_ManyThreads_NoRace_AllGaugesReturnToZero) {
  RouterGuard guard(Router::Create(
      {.policy = "cache-aware",
       .seed = 1,
       .admission = {.max_in_flight_per_replica = GetParam(), .queue_length = GetParam() > 0 ? size_t{8} : 0},
       .index_bytes = 1 << 20}));
  std::atomic<uint64_t> next_id{1};
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < kThreads; ++i) {
    workers.push_back(std::make_unique<Worker>(guard, next_id, i, GetParam() > 0 ? 1 : 12));
    threads.emplace_back([&worker = *workers.back()] { worker.Run(); });
  }
  uint64_t requests = 0;
  for (size_t i = 0; i < threads.size(); ++i) {
    threads[i].join();
    requests += workers[i]->requests();
  }
  guard.With([&](Router& router) {
    const Totals totals = router.totals();
    EXPECT_EQ(totals.requests, requests);
    uint64_t ended = 0;
    for (const uint64_t count : totals.outcomes) ended += count;
    EXPECT_EQ(ended, requests);
    for (const ReplicaView& view : router.Replicas(Now())) {
      EXPECT_EQ(view.in_flight, 0) << view.url;
      EXPECT_EQ(view.pending_prefill_tokens, 0) << view.url;
      EXPECT_LE(view.indexed_tokens, 4096) << view.url;
    }
    EXPECT_EQ(router.queue_stats().waiting, 0u);
    EXPECT_EQ(router.queue_stats().served > 0, GetParam() > 0);
    EXPECT_EQ(router.queue_stats().cancelled > 0, GetParam() > 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Bounds, GuardUnder, testing::Values(0, 1));

}  // namespace
}  // namespace kvring::router
