// FleetSimulation: a trace through the router's own code to a fleet of replicas with the replica's own engine
// and scheduler, in virtual time. Nothing of either is written again here: this is the network between them
// and the clients.
//
//   client -> router   at once                    OnRequest, OnDispatch
//   router -> replica  after network_delay        ReplicaModel::Add
//   replica            step after step, each as long as the cost model says; or run after run of steps
//                      (fidelity: replica_model.h)
//   replica -> router  after network_delay        OnAdmitted, OnFirstToken, OnComplete, OnCacheEvents; loads
//   at
//                                                 most every load_report_every
//
// Several routers (each request comes to one, at random) share nothing but the replicas, which tell all of
// them what they hold and how loaded they are. With faults (faults.h) routers also probe, wait for a first
// token only as long as the decision says, and retry elsewhere. Then, once all requests have ended and the
// last messages have come, the run is looked over for what must not be (FleetResult::violations).
//
// The same trace, options and seed give the same run: compare trace_hash. Every request ends exactly once, or
// Run aborts. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/histogram.h"
#include "router/router.h"
#include "sim/faults.h"
#include "sim/replica_model.h"
#include "sim/trace.h"

namespace kvring::sim {

inline constexpr int kFleetSamples = 120;

enum class Fidelity { kStep, kQueue };

struct FleetOptions {
  Fidelity fidelity = Fidelity::kStep;
  int32_t replicas = 8;
  SimReplicaOptions replica;
  router::RouterConfig router;
  Duration network_delay = std::chrono::microseconds(200);
  Duration load_report_every = std::chrono::milliseconds(100);
  bool session_keys = false;  // sessions of the trace reach the router
  bool cache_events = true;   // replicas tell what they hold
  int32_t routers = 1;
  std::vector<Fault> faults;
  Disturbance disturbance;
};

/// The fleet at one moment.
struct FleetSample {
  Duration at{};              // since the trace began
  int64_t prompt_tokens = 0;  // of requests admitted so far
  int64_t cached_tokens = 0;
  std::vector<int32_t> in_flight;  // by replica
};

/// Times in nanoseconds. A request's first token takes: queued at the replica, its prefill, and the network.
struct FleetResult {
  int64_t requests = 0;
  int64_t refused = 0;  // can never fit, or no replica takes it
  int64_t failed = 0;   // broken after the first token
  int64_t retries = 0;
  Duration last_trouble{};  // when the last one was refused or failed, since the trace began
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;      // as the engines report them
  int64_t predicted_tokens = 0;   // as the router believed
  int64_t predictions_exact = 0;  // requests on which both were the same
  int64_t ceiling_tokens = 0;     // one cache that never forgets (InfiniteCache)
  int64_t output_tokens = 0;
  int64_t follow_ups = 0;          // turns after a first one
  int64_t follow_ups_on_same = 0;  // on the replica of the turn before
  Histogram ttft;
  Histogram queued;
  Histogram itl;  // mean time between two tokens, of each request that has some
  Histogram latency;
  Duration makespan{};
  std::vector<int64_t> requests_of;  // by replica
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t evictions = 0;
  uint64_t trace_hash = 0;
  std::vector<FleetSample> samples;     // about kFleetSamples, evenly over the arrivals
  std::vector<std::string> violations;  // of what always holds; none, or the simulator or router has a fault
  std::vector<std::string> warnings;    // of the router: what the policy lacked

  double hit_rate() const;
  double ceiling() const;
  /// Requests of the busiest replica over the mean; 0 without requests.
  double max_over_mean() const;
};

class FleetRun;

class FleetSimulation {
 public:
  /// The trace must outlive the simulation. router.policy must be one of Router::PolicyNames().
  FleetSimulation(const Trace& trace, const FleetOptions& options);
  ~FleetSimulation();

  /// To the end of the last request. Once.
  FleetResult Run();

 private:
  std::unique_ptr<FleetRun> run_;
};

}  // namespace kvring::sim
