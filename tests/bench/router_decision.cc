// router_decision [REPLICAS…]: cost of a routing decision with cache-aware, prompt parsed and hashed before:
// what the gateway does under its lock. 8k-token prompts (32 KB) of conversations that share system prompts;
// the index is filled to its bound. Prints one line per fleet size: p50 and p99 of OnRequest (match, score,
// choose) and of the whole life of a request under the lock (OnRequest, OnDispatch, OnComplete), the hash
// outside of it, and memory per held block.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/random.h"
#include "router/fleet/residency_index.h"
#include "router/router.h"

namespace kvring::router {
namespace {

using Clock = std::chrono::steady_clock;

double MicrosSince(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

double Quantile(std::vector<double>& values, double q) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

std::string Text(uint64_t seed, size_t bytes) {
  Random random(seed);
  std::string text(bytes, ' ');
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    const uint64_t word = random.Next() | 0x2020202020202020ULL;
    std::copy_n(reinterpret_cast<const char*>(&word), 8, text.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return text;
}

class Bench {
 public:
  explicit Bench(int replicas) : router_(Router::Create({.seed = 1, .index_bytes = int64_t{512} << 20})) {
    for (int i = 0; i < replicas; ++i) {
      const ReplicaId id = router_->AddReplica(
          {.url = "http://10." + std::to_string(i / 256) + "." + std::to_string(i % 256) + ".1:80"}, now_);
      router_->OnProbe(id, true, now_);
    }
    for (uint64_t i = 0; i < kSystems; ++i) systems_.push_back(Text(i, 8192));
  }

  /// Sends conversation `c`, 28 KB long at first, 1 KB longer each time.
  void Send(uint64_t c, uint64_t turn, bool measure) {
    const std::string text = systems_[c % kSystems] + Text(1'000'000 + c, 20'480 + turn * 1024);
    const auto hash_from = Clock::now();
    const PromptKey key = MakePromptKey({"m", {}, {}}, std::string_view(text));
    const double hash_us = MicrosSince(hash_from);
    const RequestId id{++last_};
    now_ = now_ + std::chrono::microseconds(100);
    const auto from = Clock::now();
    const Decision decision = router_->OnRequest({.id = id, .prompt = &key}, now_);
    const double request_us = MicrosSince(from);
    router_->OnDispatch(id, now_);
    const double dispatch_us = MicrosSince(from);
    if (decision.candidates.empty()) std::abort();
    flying_.push_back(id);
    if (flying_.size() > 64) {
      const RequestId done = flying_[flying_.size() - 65];
      router_->OnComplete(
          done,
          {.usage = UsageReport{.prompt_tokens = 7000, .completion_tokens = 100, .cached_tokens = 6500}},
          now_);
    }
    if (!measure) return;
    hash_.push_back(hash_us);
    request_.push_back(request_us);
    dispatch_.push_back(dispatch_us);
  }

  void Run(int replicas) {
    constexpr uint64_t kConversations = 20'000;
    for (uint64_t c = 0; c < kConversations; ++c) Send(c, 0, false);
    Random random(9);
    for (int i = 0; i < 20'000; ++i)
      Send(random.Below(kConversations), 1 + static_cast<uint64_t>(i) / 5000, true);
    int64_t indexed = 0;
    for (const ReplicaView& view : router_->Replicas(now_)) indexed += view.indexed_tokens;
    std::printf(
        "%5d replicas, %.1fM tokens indexed: OnRequest p50 %.2f us p99 %.2f us; with OnDispatch p50 %.2f us "
        "p99 %.2f us; hash (no lock) p50 %.2f us\n",
        replicas, static_cast<double>(indexed) * 1e-6, Quantile(request_, 0.5), Quantile(request_, 0.99),
        Quantile(dispatch_, 0.5), Quantile(dispatch_, 0.99), Quantile(hash_, 0.5));
  }

 private:
  static constexpr uint64_t kSystems = 50;
  std::unique_ptr<Router> router_;
  std::vector<std::string> systems_;
  std::vector<RequestId> flying_;
  Instant now_{1};
  uint64_t last_ = 0;
  std::vector<double> hash_, request_, dispatch_;
};

}  // namespace
}  // namespace kvring::router

int main(int argc, char** argv) {
  std::vector<int> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(std::atoi(argv[i]));
  if (sizes.empty()) sizes = {8, 64, 1000};
  for (const int replicas : sizes) kvring::router::Bench(replicas).Run(replicas);
}
