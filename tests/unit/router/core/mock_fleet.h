// MockFleet: a closed-loop simulation of OpenAI-compatible backends with prefix caches behind the router
// core, in virtual time. Sessions of several turns in groups that share a system prompt; each turn sends the
// whole history; the session that goes next is drawn at random. A backend keeps 64-byte blocks (16 tokens of
// 4 bytes) in an LRU, and answers after its prefill and a base latency; with slots, at most so many prefills
// run at a time and the rest wait in order. The router sees what an HTTP gateway would: no first token
// before the end, and usage.
#pragma once

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <queue>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/random.h"
#include "router/router.h"

namespace kvring::router {

struct MockWorkload {
  int backends = 8;
  int sessions = 200;
  int turns = 10;
  int group = 20;
  int system_tokens = 1000;
  int user_tokens = 150;
  int assistant_tokens = 100;
  int hot_percent = 0;
  int late_percent = 0;     // of the sessions start only at the event
  int event_percent = 100;  // of the requests are issued before the event
  bool add_at_event = false;
  size_t capacity_blocks = 6000;
  int connections = 32;
  int slots = 0;
  int64_t base_latency_ns = 40'000'000;
  int64_t prefill_ns_per_byte = 5'000;
  std::vector<double> slowness;  // per backend; empty: all 1
  bool session_keys = false;
  std::string answer;  // that the router reads; what comes back with the next turn is another text
  uint64_t seed = 1;
  std::string policy = "cache-aware";
};

struct MockResult {
  double hit = 0;
  double max_over_mean = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  double same_backend = 0;
  double new_share = 0;         // of the added backend after the event, 1 = fair
  double prediction_error = 0;  // mean |predicted - cached| / prompt
  std::vector<int> answers;     // by backend
  std::vector<double> hit_by_tenth;
};

class MockFleet {
 public:
  explicit MockFleet(const MockWorkload& w)
      : w_(w), random_(w.seed), router_(Router::Create({.policy = w.policy, .seed = w.seed})) {
    for (int i = 0; i < w.backends; ++i) AddBackend();
    const int hot = w.sessions * w.hot_percent / 100;
    for (int s = 0; s < w.sessions; ++s) {
      const int prompt = s < hot ? 999'999 : s / w.group;
      sessions_.push_back({});
      Say(sessions_.back(), "system", Words(1'000'000 + static_cast<uint64_t>(prompt), w.system_tokens * 4));
      (s * 37 % 100 < w.late_percent ? late_ : ready_).push_back(s);
    }
  }

  MockResult Run() {
    for (int c = 0; c < w_.connections; ++c) Issue();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      if (now_ >= next_tick_) {
        router_->Tick(At(now_));
        next_tick_ = now_ + 100'000'000;
      }
      event.kind == kPrefilled ? Prefilled(event.job) : Answer(event.job);
    }
    return Summary();
  }

 private:
  struct Session {
    std::string canonical, text;
    int turn = 0;
    int last = -1;
  };
  struct Job {
    int session = 0;
    int backend = 0;
    int64_t started = 0;
    std::string canonical;
    PromptKey key;
    std::vector<uint64_t> chain;
    int64_t predicted = 0;
    size_t cached = 0;
    bool after_event = false;
  };
  struct Backend {
    ReplicaId id;
    std::list<uint64_t> order;
    std::unordered_map<uint64_t, std::list<uint64_t>::iterator> blocks;
    std::deque<uint64_t> waiting;
    int prefilling = 0;
    int answers = 0;
    int answers_after = 0;
  };
  enum Kind { kPrefilled, kAnswered };
  struct Event {
    int64_t at;
    uint64_t job;
    Kind kind;
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : job > other.job; }
  };

  static Instant At(int64_t ns) { return {ns}; }

  void AddBackend() {
    Backend backend;
    backend.id = router_->AddReplica({.url = "http://127.0.0.1:" + std::to_string(21000 + backends_.size())},
                                     At(now_));
    router_->OnProbe(backend.id, true, At(now_));
    index_of_[backend.id] = static_cast<int>(backends_.size());
    backends_.push_back(std::move(backend));
  }

  static std::string Words(uint64_t seed, int bytes) {
    Random random(MixBits(seed + 0x1234567));
    std::string s;
    while (static_cast<int>(s.size()) < bytes) {
      for (uint64_t i = 3 + random.Below(5); i > 0; --i) s += static_cast<char>('a' + random.Below(26));
      s += ' ';
    }
    s.resize(static_cast<size_t>(bytes));
    return s;
  }

  static void Say(Session& session, const char* role, const std::string& text) {
    session.canonical += std::string(role) + '\x1f' + text + '\x1e';
    session.text += text;
  }

  std::string TurnText(int session, int who, int tokens) const {
    return Words(static_cast<uint64_t>(session) * 1000 +
                     static_cast<uint64_t>(sessions_[static_cast<size_t>(session)].turn) * 2 + 5'000'000 +
                     static_cast<uint64_t>(who),
                 tokens * 4);
  }

  void Issue() {
    if (ready_.empty()) {
      ++idle_connections_;
      return;
    }
    const size_t pick = random_.Below(ready_.size());
    const int s = ready_[pick];
    ready_[pick] = ready_.back();
    ready_.pop_back();
    Session& session = sessions_[static_cast<size_t>(s)];
    Say(session, "user", TurnText(s, 0, w_.user_tokens));
    const uint64_t id = ++issued_;
    if (!event_done_ && static_cast<int>(issued_) * 100 >= w_.sessions * w_.turns * w_.event_percent)
      OnEvent();
    Job& job = jobs_[id];
    job.session = s;
    job.started = now_;
    job.after_event = event_done_;
    job.canonical = session.canonical;
    job.key = MakePromptKey({"mock", {}, {}}, std::string_view(job.canonical));
    uint64_t hash = 0;
    for (size_t at = 0; at + 64 <= session.text.size(); at += 64) {
      job.chain.push_back(hash = MixBits(hash ^ HashName(std::string_view(session.text).substr(at, 64))));
    }
    RequestView view{.id = RequestId{id}, .prompt = &job.key};
    if (w_.session_keys) view.session = SessionKey{MixBits(static_cast<uint64_t>(s))};
    const Decision decision = router_->OnRequest(view, At(now_));
    router_->OnDispatch(view.id, At(now_));
    job.predicted = decision.predicted_cached_tokens;
    job.backend = index_of_.at(*decision.replica);
    Arrive(id, job);
  }

  void OnEvent() {
    event_done_ = true;
    if (w_.add_at_event) AddBackend();
    ready_.insert(ready_.end(), late_.begin(), late_.end());
    late_.clear();
    for (; idle_connections_ > 0 && !ready_.empty(); --idle_connections_) Issue();
  }

  bool Touch(Backend& b, uint64_t block) {
    const auto it = b.blocks.find(block);
    if (it == b.blocks.end()) return false;
    b.order.splice(b.order.begin(), b.order, it->second);
    return true;
  }
  void LookUp(Backend& b, Job& job) {
    while (job.cached < job.chain.size() && Touch(b, job.chain[job.cached])) ++job.cached;
  }
  void Store(Backend& b, const Job& job) {
    for (auto block = job.chain.rbegin(); block != job.chain.rend(); ++block) {
      if (Touch(b, *block)) continue;
      b.order.push_front(*block);
      b.blocks[*block] = b.order.begin();
    }
    while (b.order.size() > w_.capacity_blocks) {
      b.blocks.erase(b.order.back());
      b.order.pop_back();
    }
  }
  int64_t PrefillNs(const Job& job) const {
    const double slow = w_.slowness.empty() ? 1 : w_.slowness[static_cast<size_t>(job.backend)];
    return static_cast<int64_t>(static_cast<double>((job.chain.size() - job.cached) * 64 *
                                                    static_cast<size_t>(w_.prefill_ns_per_byte)) *
                                slow);
  }

  void Arrive(uint64_t id, Job& job) {
    Backend& b = backends_[static_cast<size_t>(job.backend)];
    if (w_.slots > 0) {
      b.waiting.push_back(id);
      StartWaiting(b);
      return;
    }
    LookUp(b, job);
    Store(b, job);
    events_.push({now_ + PrefillNs(job) + w_.base_latency_ns, id, kAnswered});
  }
  void StartWaiting(Backend& b) {
    while (b.prefilling < w_.slots && !b.waiting.empty()) {
      const uint64_t id = b.waiting.front();
      b.waiting.pop_front();
      ++b.prefilling;
      LookUp(b, jobs_[id]);
      events_.push({now_ + PrefillNs(jobs_[id]), id, kPrefilled});
    }
  }
  void Prefilled(uint64_t id) {
    Backend& b = backends_[static_cast<size_t>(jobs_[id].backend)];
    Store(b, jobs_[id]);
    --b.prefilling;
    events_.push({now_ + w_.base_latency_ns, id, kAnswered});
    StartWaiting(b);
  }

  void Answer(uint64_t id) {
    Job& job = jobs_[id];
    const auto prompt = static_cast<int32_t>(job.chain.size() * 16),
               cached = static_cast<int32_t>(job.cached * 16);
    router_->OnComplete(RequestId{id},
                        {.usage = UsageReport{.prompt_tokens = prompt,
                                              .completion_tokens = 4,
                                              .cached_tokens = cached,
                                              .generated_bytes = w_.answer}},
                        At(now_));
    Backend& b = backends_[static_cast<size_t>(job.backend)];
    ++b.answers;
    b.answers_after += job.after_event;
    prompt_tokens_ += prompt;
    cached_tokens_ += cached;
    error_ += static_cast<double>(std::abs(job.predicted - cached)) / prompt;
    tenths_.push_back({prompt, cached});
    latencies_.push_back(now_ - job.started);
    Session& session = sessions_[static_cast<size_t>(job.session)];
    if (session.last >= 0) ++followed_, same_ += session.last == job.backend;
    session.last = job.backend;
    Say(session, "assistant", TurnText(job.session, 1, w_.assistant_tokens));
    if (++session.turn < w_.turns) ready_.push_back(job.session);
    jobs_.erase(id);
    Issue();
    for (; idle_connections_ > 0 && !ready_.empty(); --idle_connections_) Issue();
  }

  MockResult Summary() {
    MockResult r;
    r.hit = static_cast<double>(cached_tokens_) / static_cast<double>(prompt_tokens_);
    int most = 0, sum = 0, after = 0;
    for (const Backend& b : backends_) {
      r.answers.push_back(b.answers);
      most = std::max(most, b.answers);
      sum += b.answers;
      after += b.answers_after;
    }
    r.max_over_mean = most * static_cast<double>(w_.backends) / sum;
    if (w_.add_at_event)
      r.new_share = backends_.back().answers_after * static_cast<double>(backends_.size()) / after;
    std::sort(latencies_.begin(), latencies_.end());
    r.p50_ms = static_cast<double>(latencies_[latencies_.size() / 2]) / 1e6;
    r.p99_ms = static_cast<double>(latencies_[latencies_.size() * 99 / 100]) / 1e6;
    r.same_backend = static_cast<double>(same_) / std::max(followed_, 1);
    r.prediction_error = error_ / static_cast<double>(latencies_.size());
    for (size_t i = 0; i < 10; ++i) {
      int64_t prompt = 1, cached = 0;
      for (size_t k = tenths_.size() * i / 10; k < tenths_.size() * (i + 1) / 10; ++k)
        prompt += tenths_[k].first, cached += tenths_[k].second;
      r.hit_by_tenth.push_back(static_cast<double>(cached) / static_cast<double>(prompt));
    }
    return r;
  }

  MockWorkload w_;
  Random random_;
  std::unique_ptr<Router> router_;
  std::deque<Backend> backends_;  // blocks point into each one's list, so backends must not move
  std::map<ReplicaId, int> index_of_;
  std::vector<Session> sessions_;
  std::vector<int> ready_, late_;
  std::unordered_map<uint64_t, Job> jobs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  int64_t now_ = 1, next_tick_ = 0;
  uint64_t issued_ = 0;
  int idle_connections_ = 0;
  bool event_done_ = false;
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0;
  double error_ = 0;
  int followed_ = 0, same_ = 0;
  std::vector<int64_t> latencies_;
  std::vector<std::pair<int32_t, int32_t>> tenths_;
};

}  // namespace kvring::router
