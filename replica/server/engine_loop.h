// EngineLoop: the one thread that owns the engine. Requests and cancellations come in through a bounded
// inbox; after each step the events go to the requests' sinks, then the step listeners are told, so that a
// connection can send all tokens of a step in one message. Submit and Cancel are thread-safe; sinks and
// listeners are called on the loop's thread.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/metrics.h"
#include "replica/engine/engine.h"
#include "replica/server/engine_metrics.h"
#include "replica/server/generation.h"
#include "replica/server/running_generation.h"

namespace kvring::replica {

/// A submitted request; 0 is none.
using GenerationId = StrongId<struct GenerationIdTag, uint64_t>;

/// What the loop measured; for load reports.
struct LoopLoad {
  EngineLoad engine;
  double prefill_tokens_per_second = 0;  // over steps that prefilled; 0 until known
  double decode_step_seconds = 0;        // mean of steps that only decoded; 0 until known
};

class EngineLoop {
 public:
  /// At the end of a step, and of an idle turn in which something changed.
  class StepListener {
   public:
    /// First of all, and once: what the cache holds before the events of the next OnStep, as stores.
    virtual void OnCacheSnapshot(const CacheEventBatch& snapshot) = 0;
    virtual void OnStep(const LoopLoad& load, const CacheEventBatch& events) = 0;

   protected:
    ~StepListener() = default;
  };

  EngineLoop(Executor& executor, const EngineOptions& options, const ServedModel& model,
             MetricRegistry& metrics);
  /// Ends the thread; running requests get an error.
  ~EngineLoop();

  /// Never blocks. When the inbox is full the sink gets a 429 at once, in this call.
  GenerationId Submit(GenerationPlan plan, std::shared_ptr<GenerationSink> sink);
  /// Frees the request's blocks within a step; its sink hears nothing more. Unknown ids are nothing.
  void Cancel(GenerationId id);

  /// Forgets all cached prefixes within a step; `done` gets the dropped tokens on the loop's thread, or an
  /// error when the loop ends first.
  void ResetCache(std::function<void(absl::StatusOr<int64_t>)> done);

  /// The listener is called, soon for the first time, until the handle is destroyed; not during or after its
  /// destruction.
  class Listening;
  std::unique_ptr<Listening> Listen(StepListener& listener);

  LoopLoad load() const;
  int32_t block_size() const { return block_size_; }
  int32_t max_tokens_per_sequence() const { return max_tokens_; }
  /// Requests in the engine or on the way there.
  int64_t in_flight() const { return in_flight_.load(std::memory_order_relaxed); }

 private:
  /// A start, a reset of the cache, or (neither is set) a cancellation.
  struct Command {
    GenerationId id;
    std::unique_ptr<RunningGeneration> start;
    std::function<void(absl::StatusOr<int64_t>)> reset;
  };

  void Run();
  bool TakeCommands();
  void Apply(Command command);
  void Start(GenerationId id, std::unique_ptr<RunningGeneration> generation);
  void StepOnce();
  void HandleEvents();
  void Handle(GenerationId id, size_t prompt, RequestId request, const EngineEvent::Admitted& admitted);
  void Handle(GenerationId id, size_t prompt, RequestId request, const EngineEvent::PromptToken& token);
  void Handle(GenerationId id, size_t prompt, RequestId request, const EngineEvent::Token& token);
  void Handle(GenerationId id, size_t prompt, RequestId request, const EngineEvent::Finished& finished);
  void Handle(GenerationId id, size_t prompt, RequestId request, const EngineEvent::Done& done);
  void Handle(GenerationId id, size_t prompt, RequestId request, const EngineEvent::Failed& failed);
  void Drop(GenerationId id);
  void Measure(const StepReport& report, Duration elapsed);
  void Notify();

  Engine engine_;
  const ServedModel& model_;
  const int32_t block_size_;
  const int32_t max_tokens_;

  // Loop thread only.
  absl::flat_hash_map<GenerationId, std::unique_ptr<RunningGeneration>> running_;  // look-up only
  absl::flat_hash_map<RequestId, std::pair<GenerationId, size_t>>
      by_request_;  // engine request: generation, prompt
  uint64_t next_request_ = 1;
  double prefilled_tokens_ = 0;  // with fading memory
  double prefill_seconds_ = 0;

  mutable absl::Mutex mutex_;
  std::vector<Command> inbox_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  LoopLoad load_ ABSL_GUARDED_BY(mutex_);
  absl::Mutex listener_mutex_ ABSL_ACQUIRED_BEFORE(mutex_);
  struct Listener {
    StepListener* listener;
    bool greeted = false;  // it has the snapshot
  };
  std::map<uint64_t, Listener> listeners_ ABSL_GUARDED_BY(listener_mutex_);
  uint64_t next_listener_ ABSL_GUARDED_BY(listener_mutex_) = 1;
  std::atomic<uint64_t> next_id_{1};
  std::atomic<int64_t> in_flight_{0};

  Counter& prompt_tokens_;
  Counter& cached_tokens_;
  Counter& completion_tokens_;
  Counter& requests_;
  Counter& typed_bos_;
  Counter& cancelled_;
  Counter& failed_;
  Counter& preemptions_;
  BucketHistogram& step_seconds_;
  EngineMetrics engine_metrics_;

  std::thread thread_;
};

class EngineLoop::Listening {
 public:
  Listening(EngineLoop& loop, uint64_t id) : loop_(loop), id_(id) {}
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  EngineLoop& loop_;
  uint64_t id_;
};

}  // namespace kvring::replica
