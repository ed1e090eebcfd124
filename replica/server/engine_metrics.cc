#include "replica/server/engine_metrics.h"

namespace kvring::replica {
namespace {

template <class Stats>
struct Series {
  uint64_t Stats::*value;
  const char* name;
  const char* help;
};

constexpr Series<BlockManagerStats> kCacheSeries[] = {
    {&BlockManagerStats::query_tokens, "kvring_replica_prefix_query_tokens_total",
     "Prompt tokens looked up at first admission."},
    {&BlockManagerStats::hit_tokens, "kvring_replica_prefix_hit_tokens_total", "Of these, found."},
    {&BlockManagerStats::readmitted_tokens, "kvring_replica_readmitted_tokens_total",
     "Tokens of sequences admitted again after preemption."},
    {&BlockManagerStats::readmitted_hit_tokens, "kvring_replica_readmitted_hit_tokens_total",
     "Of these, found."},
    {&BlockManagerStats::full_hits, "kvring_replica_prefix_full_hits_total",
     "Requests that found all they may take."},
    {&BlockManagerStats::partial_hits, "kvring_replica_prefix_partial_hits_total",
     "Requests that found some of it."},
    {&BlockManagerStats::misses, "kvring_replica_prefix_misses_total", "Requests that found nothing."},
    {&BlockManagerStats::evictions, "kvring_replica_evicted_blocks_total", "Cached blocks given up."},
    {&BlockManagerStats::collisions, "kvring_replica_hash_collisions_total",
     "Blocks of equal hash and other content: misses."},
    {&BlockManagerStats::copies, "kvring_replica_copied_blocks_total", "Copies on write."},
    {&BlockManagerStats::merged_blocks, "kvring_replica_merged_blocks_total",
     "Blocks computed twice and kept once."},
    {&BlockManagerStats::double_frees, "kvring_replica_double_frees_total",
     "Blocks given back twice: a fault of the engine without effect."},
    {&BlockManagerStats::tier_hit_tokens, "kvring_replica_host_tier_hit_tokens_total",
     "Of the found tokens, loaded from the host tier."},
    {&BlockManagerStats::tier_damaged_blocks, "kvring_replica_host_tier_damaged_blocks_total",
     "Blocks of the host tier that could not be read: computed again."},
    {&BlockManagerStats::last_block_copies, "kvring_replica_last_block_copies_total",
     "Prompts cached whole: all of the last block but its last token was copied."},
    {&BlockManagerStats::pins_refused, "kvring_replica_pins_refused_total",
     "Blocks not pinned since half of the pool is."},
};

constexpr Series<SchedulerStats> kSchedulerSeries[] = {
    {&SchedulerStats::recomputed_tokens, "kvring_replica_preempted_tokens_total",
     "Computed tokens given up by preemption."},
    {&SchedulerStats::bypasses, "kvring_replica_bypasses_total",
     "Admissions past a request that did not fit."},
    {&SchedulerStats::shared_waits, "kvring_replica_shared_prefill_waits_total",
     "Steps that requests waited for a prefix being computed by another."},
    {&SchedulerStats::deadlocks_broken, "kvring_replica_deadlocks_broken_total",
     "Preemptions when every running sequence waited for a block."},
    {&SchedulerStats::pins_given_up, "kvring_replica_pins_given_up_total",
     "Pinned blocks given up for a request that could otherwise not run."},
};

template <class Stats, size_t n>
std::vector<Counter*> Register(MetricRegistry& metrics, const Series<Stats> (&table)[n]) {
  std::vector<Counter*> counters;
  for (const Series<Stats>& series : table) counters.push_back(&metrics.GetCounter(series.name, series.help));
  return counters;
}

// The stats are totals since the start, and so are the counters.
template <class Stats, size_t n>
void AddUp(const std::vector<Counter*>& counters, const Series<Stats> (&table)[n], const Stats& stats) {
  for (size_t i = 0; i < n; ++i) counters[i]->Add(stats.*table[i].value - counters[i]->value());
}

}  // namespace

EngineMetrics::EngineMetrics(MetricRegistry& metrics)
    : running_(metrics.GetGauge("kvring_replica_running_sequences", "Sequences that hold blocks.")),
      waiting_(metrics.GetGauge("kvring_replica_waiting_sequences", "Sequences that wait for admission.")),
      kv_used_tokens_(
          metrics.GetGauge("kvring_replica_kv_used_tokens", "Slots of blocks held by running sequences.")),
      kv_cached_tokens_(
          metrics.GetGauge("kvring_replica_kv_cached_tokens", "Slots of blocks held for reuse alone.")),
      kv_host_tier_tokens_(
          metrics.GetGauge("kvring_replica_kv_host_tier_tokens", "Slots of blocks kept in the host tier.")),
      pending_prefill_tokens_(metrics.GetGauge("kvring_replica_pending_prefill_tokens",
                                               "Tokens that are still to be prefilled.")),
      cache_counters_(Register(metrics, kCacheSeries)),
      scheduler_counters_(Register(metrics, kSchedulerSeries)) {}

void EngineMetrics::Update(const EngineLoad& load, const BlockManagerStats& cache,
                           const SchedulerStats& scheduler) {
  running_.Set(load.running);
  waiting_.Set(load.waiting);
  kv_used_tokens_.Set(static_cast<double>(load.kv_used_tokens));
  kv_cached_tokens_.Set(static_cast<double>(load.kv_cached_tokens));
  kv_host_tier_tokens_.Set(static_cast<double>(load.kv_host_tier_tokens));
  pending_prefill_tokens_.Set(static_cast<double>(load.pending_prefill_tokens));
  AddUp(cache_counters_, kCacheSeries, cache);
  AddUp(scheduler_counters_, kSchedulerSeries, scheduler);
}

}  // namespace kvring::replica
