#include "router/gateway/gateway_metrics.h"

#include <tuple>

#include "common/runtime/clock.h"

namespace kvring::router {
namespace {

std::array<Counter*, kOutcomeClasses> OutcomeCounters(MetricRegistry& registry) {
  std::array<Counter*, kOutcomeClasses> counters;
  for (int i = 0; i < kOutcomeClasses; ++i) {
    counters[static_cast<size_t>(i)] =
        &registry.GetCounter("kvring_requests_total", "Requests by how they ended.",
                             {{"outcome", std::string(OutcomeName(static_cast<OutcomeClass>(i)))}});
  }
  return counters;
}

void SetReplicaGauges(MetricRegistry& registry, const ReplicaView& view) {
  const auto gauge = [&](std::string_view name, std::string_view help, double value) {
    registry.GetGauge(name, help, {{"replica", view.name}}).Set(value);
  };
  gauge("kvring_replica_up", "1 when the replica takes requests.", view.state == ReplicaState::kUp ? 1 : 0);
  gauge("kvring_replica_in_flight", "Requests sent to the replica and not ended.", view.in_flight);
  gauge("kvring_replica_pending_prefill_tokens", "Prompt tokens sent and not yet prefilled.",
        static_cast<double>(view.pending_prefill_tokens));
  gauge("kvring_replica_indexed_tokens", "Tokens believed to be in the replica's cache.",
        static_cast<double>(view.indexed_tokens));
  gauge("kvring_replica_kv_capacity_tokens", "KV cache capacity; 0: unknown.",
        static_cast<double>(view.kv_capacity_tokens));
  gauge("kvring_replica_requests", "Requests sent to the replica since it joined.",
        static_cast<double>(view.requests));
  gauge("kvring_replica_stale_load", "1 while no fresh load report is there and own counts are used.",
        view.load_stale ? 1 : 0);
  gauge("kvring_replica_load_probe_errors", "Times that the replica's load could not be read.",
        static_cast<double>(view.load_errors));
  gauge("kvring_replica_cache_event_gaps", "Gaps in the replica's cache events.",
        static_cast<double>(view.events.gaps));
  gauge("kvring_replica_cache_events_missing", "1 while its cache events have a gap and are not believed.",
        view.events.state == EventsState::kMissing ? 1 : 0);
  gauge("kvring_replica_health_transitions", "Changes of health (probes, ejections) since it joined.",
        static_cast<double>(view.health_transitions));
  gauge("kvring_replica_failures", "Failed requests of the replica since it joined.",
        static_cast<double>(view.failures));
}

void SetCounter(MetricRegistry& registry, std::string_view name, std::string_view help, uint64_t value,
                const Labels& labels = {}) {
  registry.GetCounter(name, help, labels).Add(value);
}

void SetTotals(MetricRegistry& registry, const Totals& totals) {
  SetCounter(registry, "kvring_prompt_tokens_total", "Prompt tokens, as reported by the replicas.",
             totals.prompt_tokens);
  SetCounter(registry, "kvring_cached_tokens_total", "Prompt tokens found in caches, as reported.",
             totals.cached_tokens);
  SetCounter(registry, "kvring_predicted_cached_tokens_total",
             "Prompt tokens that the router expected in caches.", totals.predicted_cached_tokens);
  SetCounter(registry, "kvring_completion_tokens_total", "Generated tokens, as reported.",
             totals.completion_tokens);
  for (size_t i = 0; i < totals.reasons.size(); ++i) {
    SetCounter(registry, "kvring_decisions_total", "Requests placed, by the reason of their last placement.",
               totals.reasons[i], {{"reason", std::string(ReasonName(static_cast<Reason>(i)))}});
  }
}

void SetQueue(MetricRegistry& registry, const QueueStats& stats) {
  registry.GetGauge("kvring_queued_requests", "Requests that wait for room on a replica.")
      .Set(static_cast<double>(stats.waiting));
  const auto count = [&](const char* reason, uint64_t value) {
    SetCounter(registry, "kvring_queue_ends_total",
               "Requests that left the queue, or found it full, by the reason.", value, {{"reason", reason}});
  };
  count("served", stats.served);
  count("cancelled_in_queue", stats.cancelled);
  count("queue_timeout", stats.timed_out);
  count("queue_full", stats.full);
  count("no_endpoints", stats.no_endpoints);
}

}  // namespace

GatewayMetrics::GatewayMetrics(MetricRegistry& registry)
    : outcomes(OutcomeCounters(registry)),
      retries(registry.GetCounter("kvring_retries_total", "Attempts after the first of a request.")),
      failed_after_first_byte(registry.GetCounter("kvring_failed_after_first_byte_total",
                                                  "Answers broken off after their first byte.")),
      client_closed(
          registry.GetCounter("kvring_client_closed_total", "Requests whose client left first (499).")),
      bad_events(registry.GetCounter("kvring_stream_bad_events_total",
                                     "Stream events that were no JSON; passed on as they are.")),
      missing_done(registry.GetCounter("kvring_stream_missing_done_total",
                                       "Streams that ended well but without [DONE].")),
      malformed_requests(registry.GetCounter("kvring_malformed_requests_total",
                                             "Generation requests refused before routing.")),
      key_limited(
          registry.GetCounter("kvring_key_limited_total", "Requests beyond the limits of their API key.")),
      ttft(registry.GetHistogram("kvring_ttft_seconds", "Request read to first body byte of a stream.",
                                 SecondsBounds())),
      duration(registry.GetHistogram("kvring_request_seconds", "Request read to end of answer.",
                                     SecondsBounds())) {}

// What the core and the pools know is put into a registry of this scrape alone: series of members that left
// vanish with it (OBS-04), and two scrapes at a time do not meet.
std::string MetricsPage(const MetricRegistry& registry, RouterGuard& guard,
                        const HttpUpstreamCounters& upstream, size_t client_connections) {
  const Instant now = Now();
  const auto [views, totals, queue, anomalies, warnings, refused, panics] = guard.With([&](Router& router) {
    return std::tuple(router.Replicas(now), router.totals(), router.queue_stats(), router.usage_anomalies(),
                      router.Warnings().size(), router.retries_refused(), router.Panics().size());
  });
  MetricRegistry scrape;
  for (const ReplicaView& view : views) SetReplicaGauges(scrape, view);
  SetTotals(scrape, totals);
  SetQueue(scrape, queue);
  SetCounter(scrape, "kvring_usage_anomalies_total", "Usage reports with counts that cannot be; put right.",
             anomalies);
  SetCounter(scrape, "kvring_retries_refused_total", "Retries that the fleet's budget did not allow.",
             refused);
  scrape.GetGauge("kvring_panic_pools", "Pools of which more than half is ejected.")
      .Set(static_cast<double>(panics));
  scrape.GetGauge("kvring_warnings", "Things that /admin/v1/health warns of.")
      .Set(static_cast<double>(warnings));
  scrape.GetGauge("kvring_client_connections", "Open client connections.")
      .Set(static_cast<double>(client_connections));
  scrape.GetGauge("kvring_replicas", "Members of the fleet.").Set(static_cast<double>(views.size()));
  SetCounter(scrape, "kvring_upstream_connections_opened_total", "Connections opened to replicas.",
             upstream.opened.load());
  SetCounter(scrape, "kvring_upstream_connections_reused_total", "Requests sent on kept connections.",
             upstream.reused.load());
  SetCounter(scrape, "kvring_stale_connection_replays_total",
             "Requests sent again because a kept connection was dead.", upstream.stale_replays.load());
  return registry.Expose() + scrape.Expose();
}

}  // namespace kvring::router
