#include "router/admin/admin_json.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace kvring::router {
namespace {

namespace json = boost::json;

json::string_view View(std::string_view text) { return {text.data(), text.size()}; }

json::array Strings(const std::vector<std::string>& texts) { return json::array(texts.begin(), texts.end()); }

double Ratio(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Hex: 64 bits do not fit a JavaScript number.
std::string EpochText(Epoch epoch) { return absl::StrCat(absl::Hex(epoch.value, absl::kZeroPad16)); }

std::string_view SourceName(SessionSource source) {
  switch (source) {
    case SessionSource::kHeader:
      return "header";
    case SessionSource::kGrpcField:
      return "grpc_field";
    case SessionSource::kPromptCacheKey:
      return "prompt_cache_key";
    case SessionSource::kUser:
      return "user";
    case SessionSource::kNone:
      break;
  }
  return "none";
}

json::object CandidateJson(const Candidate& candidate, std::span<const ReplicaView> views) {
  const auto view = std::find_if(views.begin(), views.end(),
                                 [&](const ReplicaView& v) { return v.id == candidate.replica; });
  json::object out;
  out["replica"] = view != views.end() ? view->name : absl::StrCat("#", candidate.replica.value);
  out["matched_tokens"] = candidate.matched_tokens;
  out["cost_s"] = candidate.cost_s;
  out["own_s"] = candidate.own_s;
  out["ext_s"] = candidate.ext_s;
  out["mem_s"] = candidate.mem_s;
  out["dec_s"] = candidate.dec_s;
  return out;
}

template <class Name>
json::object CountsJson(const std::vector<uint64_t>& counts, Name name) {
  json::object out;
  for (size_t i = 0; i < counts.size(); ++i) out[View(name(i))] = counts[i];
  return out;
}

}  // namespace

json::object BackendJson(const ReplicaView& view) {
  json::object out;
  out["id"] = view.name;
  out["url"] = view.url;
  out["state"] = View(ReplicaStateName(view.state));
  out["weight"] = view.weight;
  out["models"] = Strings(view.models);
  return out;
}

json::object ToJson(const ReplicaView& view) {
  json::object out = BackendJson(view);
  out["epoch"] = EpochText(view.epoch);
  out["in_flight"] = view.in_flight;
  out["pending_prefill_tokens"] = view.pending_prefill_tokens;
  out["kv_capacity_tokens"] = view.kv_capacity_tokens;
  out["kv_capacity_source"] = View(CapacitySourceName(view.kv_source));
  out["indexed_tokens"] = view.indexed_tokens;
  out["requests"] = view.requests;
  out["failures"] = view.failures;
  out["prompt_tokens"] = view.prompt_tokens;
  out["cached_tokens"] = view.cached_tokens;
  out["hit_rate"] = Ratio(view.cached_tokens, view.prompt_tokens);
  out["prefill_tokens_per_second"] = view.prefill_tokens_per_second;
  out["load_stale"] = view.load_stale;
  out["load_errors"] = view.load_errors;
  out["health_transitions"] = view.health_transitions;
  out["block_size"] = view.block_size;
  out["cache_events"] = View(EventsStateName(view.events.state));
  out["cache_event_gaps"] = view.events.gaps;
  return out;
}

json::object ToJson(const DecisionRecord& record, std::span<const ReplicaView> views, Instant now) {
  const Decision& decision = record.decision;
  json::object out;
  out["request_id"] = record.name.empty() ? absl::StrCat(record.id.value) : record.name;
  out["number"] = absl::StrCat(record.id.value);  // text: it may be above 2^53
  out["age_s"] = ToSeconds(now - record.at);
  out["model"] = record.model;
  out["session_source"] = View(SourceName(record.session_source));
  out["replica"] = record.replica_name;
  out["reason"] = decision.replica ? View(ReasonName(decision.reason)) : "";
  out["refusal"] = decision.refusal == Refusal::kNone ? "" : View(RefusalName(decision.refusal));
  out["attempts"] = record.attempts;
  out["complete"] = record.complete;
  out["outcome"] = record.complete ? View(OutcomeName(record.outcome)) : "running";
  out["estimated_prompt_tokens"] = decision.prompt_tokens;
  out["predicted_cached_tokens"] = decision.predicted_cached_tokens;
  out["prediction_exact"] = decision.prediction_exact;
  out["prompt_tokens"] = record.prompt_tokens;
  if (record.cached_tokens < 0) {
    out["cached_tokens"] = nullptr;
  } else {
    out["cached_tokens"] = record.cached_tokens;
  }
  out["completion_tokens"] = record.completion_tokens;
  out["ttft_ms"] = ToMillis(record.ttft);
  out["total_ms"] = ToMillis(record.total);
  json::array& candidates = out["candidates"].emplace_array();
  for (const Candidate& candidate : decision.candidates)
    candidates.push_back(CandidateJson(candidate, views));
  return out;
}

json::object ToJson(const Totals& totals) {
  json::object out;
  out["requests"] = totals.requests;
  out["prompt_tokens"] = totals.prompt_tokens;
  out["cached_tokens"] = totals.cached_tokens;
  out["predicted_cached_tokens"] = totals.predicted_cached_tokens;
  out["completion_tokens"] = totals.completion_tokens;
  out["hit_rate"] = Ratio(totals.cached_tokens, totals.prompt_tokens);
  out["outcomes"] =
      CountsJson(totals.outcomes, [](size_t i) { return OutcomeName(static_cast<OutcomeClass>(i)); });
  out["reasons"] = CountsJson(totals.reasons, [](size_t i) { return ReasonName(static_cast<Reason>(i)); });
  return out;
}

}  // namespace kvring::router
