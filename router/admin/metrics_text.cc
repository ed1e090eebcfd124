#include "router/admin/metrics_text.h"

#include "absl/strings/str_cat.h"
#include "common/json_text.h"

namespace kvring::router {
namespace {

absl::string_view Absl(std::string_view text) { return {text.data(), text.size()}; }

// Names of replicas, outcomes, reasons and policies need no escaping: letters, digits, '-' and '_'.
void Family(std::string& out, std::string_view name, std::string_view type, std::string_view help) {
  absl::StrAppend(&out, "# HELP ", Absl(name), " ", Absl(help), "\n# TYPE ", Absl(name), " ", Absl(type),
                  "\n");
}

void Sample(std::string& out, std::string_view name, std::string_view label, std::string_view value,
            double number) {
  absl::StrAppend(&out, Absl(name));
  if (!label.empty()) absl::StrAppend(&out, "{", Absl(label), "=\"", Absl(value), "\"}");
  out += ' ';
  AppendJsonNumber(out, number);
  out += '\n';
}

struct ReplicaGauge {
  std::string_view name;
  std::string_view help;
  double (*value)(const ReplicaView&);
};

constexpr ReplicaGauge kReplicaGauges[] = {
    {"kvring_core_replica_up", "1 when the replica takes requests.",
     [](const ReplicaView& v) { return v.state == ReplicaState::kUp ? 1.0 : 0.0; }},
    {"kvring_core_replica_in_flight", "Requests sent and not ended.",
     [](const ReplicaView& v) { return double(v.in_flight); }},
    {"kvring_core_replica_pending_prefill_tokens", "Prompt tokens sent and not prefilled.",
     [](const ReplicaView& v) { return double(v.pending_prefill_tokens); }},
    {"kvring_core_replica_kv_capacity_tokens", "KV cache capacity; 0: unknown.",
     [](const ReplicaView& v) { return double(v.kv_capacity_tokens); }},
    {"kvring_core_replica_indexed_tokens", "Tokens believed to be in its cache.",
     [](const ReplicaView& v) { return double(v.indexed_tokens); }},
    {"kvring_core_replica_requests", "Requests since it joined.",
     [](const ReplicaView& v) { return double(v.requests); }},
    {"kvring_core_replica_failures", "Failed requests since it joined.",
     [](const ReplicaView& v) { return double(v.failures); }},
    {"kvring_core_replica_prompt_tokens", "Prompt tokens since it joined.",
     [](const ReplicaView& v) { return double(v.prompt_tokens); }},
    {"kvring_core_replica_cached_tokens", "Of them found in its cache.",
     [](const ReplicaView& v) { return double(v.cached_tokens); }},
};

void Replicas(std::string& out, const std::vector<ReplicaView>& views) {
  for (const ReplicaGauge& gauge : kReplicaGauges) {
    Family(out, gauge.name, "gauge", gauge.help);
    for (const ReplicaView& view : views) Sample(out, gauge.name, "replica", view.name, gauge.value(view));
  }
}

void Total(std::string& out, std::string_view name, std::string_view help, uint64_t value) {
  Family(out, name, "counter", help);
  Sample(out, name, "", "", static_cast<double>(value));
}

}  // namespace

std::string MetricsText(const Router& router, Instant now) {
  std::string out;
  const Totals totals = router.totals();
  Replicas(out, router.Replicas(now));
  Total(out, "kvring_core_requests_total", "Requests that ended.", totals.requests);
  Total(out, "kvring_core_prompt_tokens_total", "Prompt tokens, as reported.", totals.prompt_tokens);
  Total(out, "kvring_core_cached_tokens_total", "Of them found in caches, as reported.",
        totals.cached_tokens);
  Total(out, "kvring_core_predicted_cached_tokens_total", "Cached tokens that were expected.",
        totals.predicted_cached_tokens);
  Total(out, "kvring_core_completion_tokens_total", "Generated tokens, as reported.",
        totals.completion_tokens);
  Family(out, "kvring_core_outcomes_total", "counter", "Requests by how they ended.");
  for (size_t i = 0; i < totals.outcomes.size(); ++i) {
    Sample(out, "kvring_core_outcomes_total", "outcome", OutcomeName(static_cast<OutcomeClass>(i)),
           static_cast<double>(totals.outcomes[i]));
  }
  Family(out, "kvring_core_reasons_total", "counter", "Requests by why their replica was chosen.");
  for (size_t i = 0; i < totals.reasons.size(); ++i) {
    Sample(out, "kvring_core_reasons_total", "reason", ReasonName(static_cast<Reason>(i)),
           static_cast<double>(totals.reasons[i]));
  }
  return out;
}

}  // namespace kvring::router
