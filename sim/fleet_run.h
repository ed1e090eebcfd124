// Internal to FleetSimulation: one run, and its parts by file: the clock and the end (fleet_run.cc), requests
// and what is heard of them (fleet_requests.cc), replicas, their steps and messages (fleet_replicas.cc),
// faults (fleet_faults.cc).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "router/fleet/prompt_key.h"
#include "sim/event_queue.h"
#include "sim/fleet_simulation.h"
#include "sim/playback.h"

namespace kvring::sim {

class FleetRun {
 public:
  FleetRun(const Trace& trace, const FleetOptions& options);
  FleetResult Run();

 private:
  enum class Kind : uint8_t {
    kArrive,    // index: request
    kReach,     // request, attempt
    kLost,      // request, attempt
    kPatience,  // request, attempt
    kStepEnd,   // replica
    kReport,    // replica
    kHear,      // replica
    kTell,      // of tellings_
    kSnapshot,  // replica, router
    kProbe,
    kTick,
    kFault,  // of options_.faults
    kHeal,
  };
  struct Payload {
    Kind kind;
    uint32_t index = 0;
    uint32_t more = 0;
  };

  // One request between its arrival and its end. A router keeps pointers into `key` and `prompt`.
  struct Active {
    Instant arrived;
    Instant first_token;
    History prompt;
    std::vector<TokenId> answer;
    router::PromptKey key;
    std::vector<ReplicaId> excluded;
    int64_t predicted = 0;
    uint32_t router = 0;
    uint32_t replica = 0;
    uint32_t attempt = 0;
    bool admitted = false;
    bool first_token_seen = false;
  };

  struct RouterNode {
    std::unique_ptr<router::Router> router;
    std::map<ReplicaId, uint32_t> index_of;
  };

  struct Node {
    std::unique_ptr<ReplicaModel> replica;
    std::vector<ReplicaId> ids;                             // by router
    std::set<uint32_t> inside;                              // requests that were sent and have not ended
    std::deque<std::pair<uint64_t, StepMessage>> messages;  // epoch; on their way to the routers
    std::map<uint32_t, std::vector<std::pair<uint64_t, StepMessage>>> held;  // by router, behind a partition
    std::set<uint32_t> untold;  // routers that have missed the latest cache events and cannot know
    uint64_t epoch = 0;
    ReplicaStats ended;  // of earlier lives
    bool alive = true;
    bool busy = false;
    bool report_due = false;
    double slowness = 1;
    Instant frozen_until;
    Instant step_end;   // an end at another time was overtaken
    Instant next_load;  // none is heard before
  };

  // Cache events or a load report that go their own way to one router.
  struct Telling {
    uint32_t replica = 0;
    uint32_t router = 0;
    uint64_t epoch = 0;
    StepMessage message;
  };

  void Handle(const Payload& event);
  void Tick();
  void Sample();
  void Settle();
  void FindViolations();
  void Finish();
  bool faulty() const { return !options_.faults.empty(); }

  // Requests.
  void Arrive(uint32_t index);
  void Dispatch(uint32_t index);
  void Reach(uint32_t index, uint32_t attempt);
  void Lose(uint32_t index);
  void Fail(uint32_t index, router::OutcomeClass outcome);
  void Refuse(uint32_t index, router::OutcomeClass outcome);
  void LeaveReplica(uint32_t index);
  void Take(const ReplicaEvent& event);
  void TakeAdmission(const ReplicaEvent& event);
  void TakeToken(const ReplicaEvent& event);
  void TakeEnd(const ReplicaEvent& event);
  void End(uint32_t index);
  bool Current(uint32_t index, uint32_t attempt) const {
    return active_[index] != nullptr && active_[index]->attempt == attempt;
  }

  // Replicas.
  void AddReplica();
  void TellFacts(const Node& node);
  void Step(uint32_t index);
  void EndStepAt(uint32_t index, Instant end);
  void EndStep(uint32_t index);
  void Send(uint32_t index, StepMessage message);
  void Report(uint32_t index);
  void Hear(uint32_t index);
  void Deliver(uint32_t replica, uint32_t router, uint64_t epoch, const StepMessage& message);
  void SendApart(uint32_t index, StepMessage& message);
  void TellLater(Telling telling, Duration lag);
  void Tell(uint32_t id);
  void TellCacheEvents(uint32_t replica, uint32_t router, const router::CacheEventBatch& batch);
  void TellSnapshot(uint32_t replica, uint32_t router);

  // Faults.
  void Begin(const Fault& fault);
  void Heal(const Fault& fault);
  void Kill(Node& node);
  void Probe();
  bool Cut(uint32_t replica, uint32_t router) const { return cuts_.contains({replica, router}); }

  uint64_t EpochOf(uint32_t replica) const { return MixBits((nodes_[replica].epoch << 32) + replica + 1); }
  int32_t IdsOf(int32_t tokens) const { return (tokens + grain_ - 1) / grain_; }
  static RequestId IdOf(uint32_t index) { return RequestId{uint64_t{index} + 1}; }
  void Note(uint64_t what, uint64_t value) {
    hash_ = MixBits(hash_ ^ MixBits(what) ^ (value << 32) ^ static_cast<uint64_t>(now_.ns));
  }

  const FleetOptions options_;
  const int32_t grain_;  // tokens per id
  std::vector<RouterNode> routers_;
  Playback playback_;
  std::deque<Node> nodes_;
  std::vector<std::unique_ptr<Active>> active_;  // by request; those under way
  EventQueue<Payload> events_;
  std::map<uint32_t, Telling> tellings_;
  uint32_t next_telling_ = 0;
  std::set<std::pair<uint32_t, uint32_t>> cuts_;  // replica, router
  Random random_;                                 // of routers and disturbances
  Instant now_{1};
  size_t left_;
  const Duration sample_every_;
  Instant next_sample_;
  int64_t admitted_tokens_ = 0;
  uint64_t hash_ = 0;
  FleetResult result_;
};

}  // namespace kvring::sim
