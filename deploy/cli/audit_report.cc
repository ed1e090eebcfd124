#include "deploy/cli/audit_report.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/absl_view.h"

namespace kvring::cli {
namespace {

using router::ReuseSums;
namespace json = boost::json;

json::value TextOrNull(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}

// Tokens by where they went; they sum to the prompt tokens.
json::array CausesJson(const ReuseSums& sums) {
  const std::pair<const char*, int64_t> rows[] = {
      {"never seen before", sums.never_seen},
      {"diverged early", sums.diverged},
      {"key differs (model, salt)", sums.other_key},
      {"partial block, last token, too short", sums.rounding},
      {"not served from cache", sums.not_served},
      {"reusable, cached tokens not reported", sums.ceiling - sums.told_ceiling},
      {"cached", sums.told_cached - sums.surplus},
  };
  json::array causes;
  for (const auto& [cause, tokens] : rows)
    causes.push_back(
        {{"cause", cause}, {"tokens", tokens}, {"share", ReuseSums::Share(tokens, sums.prompt)}});
  return causes;
}

json::object SumsJson(const ReuseSums& sums) {
  json::object out{{"requests", sums.requests},
                   {"prompt_tokens", sums.prompt},
                   {"ceiling_tokens", sums.ceiling},
                   {"ceiling_hit_rate", sums.ceiling_rate()},
                   {"achieved_hit_rate", nullptr},
                   {"reporting_requests", sums.told_requests},
                   {"reporting_ceiling_hit_rate", nullptr},
                   {"cached_tokens", sums.told_cached},
                   {"surplus_tokens", sums.surplus},
                   {"residual", sums.residual()}};
  if (sums.told_requests == 0) return out;
  out["achieved_hit_rate"] = sums.achieved_rate();
  out["reporting_ceiling_hit_rate"] = sums.told_ceiling_rate();
  return out;
}

json::array GroupsJson(const router::ReuseAudit::Sums& groups) {
  json::array out;
  for (const auto& [name, sums] : groups) {
    json::object group = SumsJson(sums);
    group["name"] = name;
    out.push_back(std::move(group));
  }
  return out;
}

json::object FindingJson(const router::ReuseAudit& audit, const router::DivergencePlace& place) {
  const router::Divergence& last = place.last;
  return {{"class", router::ClassName(last.cause)},
          {"part", router::PartName(last.place.part)},
          {"message", last.place.message < 0 ? json::value(nullptr) : json::value(last.place.message)},
          {"offset", last.offset},
          {"offset_in_part", last.now.begin - std::min(last.now.begin, last.place.content_begin)},
          {"token", place.at_token},
          {"begin", last.now.begin},
          {"end", last.now.end},
          {"earlier_length", last.earlier.length()},
          {"now_length", last.now.length()},
          {"earlier_shape", last.earlier_shape},
          {"now_shape", last.now_shape},
          {"now_text", TextOrNull(place.now_text)},
          {"least_offset", place.least_offset},
          {"most_offset", place.most_offset},
          {"requests", place.count},
          {"lost_tokens", place.lost_tokens},
          {"what_if_hit_rate", audit.WhatIfRate(place)},
          {"what_if_bytes", last.what_if_bytes},
          {"fix", router::FixOf(last.cause)},
          {"last", place.where}};
}

// A cache that gives less than half of what it could.
json::value AlarmJson(const ReuseSums& sums) {
  constexpr double kWorthAWord = 0.05;
  if (sums.told_ceiling_rate() < kWorthAWord || 2 * sums.told_cached >= sums.told_ceiling) return nullptr;
  return json::value(absl::StrFormat("expected %.1f %%, measured %.1f %%", 100 * sums.told_ceiling_rate(),
                                     100 * sums.achieved_rate()));
}

std::string Percent(const json::value& share) {
  return share.is_null() ? "not reported" : absl::StrFormat("%.1f %%", 100 * share.as_double());
}

std::string Thousands(int64_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3 + (number < 0); at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string Str(const json::value& value) { return std::string(value.as_string()); }
int64_t Int(const json::value& value) { return value.to_number<int64_t>(); }

std::string FindingText(const json::object& f, size_t number) {
  std::string where = Str(f.at("part"));
  if (!f.at("message").is_null()) absl::StrAppend(&where, " (message ", Int(f.at("message")), ")");
  std::string text = absl::StrFormat(
      "%d. %s in %s, bytes %d to %d of the prompt: %s, was %s\n"
      "   %s requests, the last at %s; found up to byte %d (token %d)\n"
      "   lost %s tokens; hit rate without it: %s\n"
      "   fix: %s\n",
      number, Str(f.at("class")), where, Int(f.at("begin")), Int(f.at("end")), Str(f.at("now_shape")),
      Str(f.at("earlier_shape")), Thousands(Int(f.at("requests"))), Str(f.at("last")), Int(f.at("offset")),
      Int(f.at("token")), Thousands(Int(f.at("lost_tokens"))), Percent(f.at("what_if_hit_rate")),
      Str(f.at("fix")));
  if (!f.at("now_text").is_null()) absl::StrAppend(&text, "   text: ", Str(f.at("now_text")), "\n");
  return text;
}

void AppendRead(std::string& out, const json::object& report) {
  const json::object& total = report.at("total").as_object();
  absl::StrAppend(&out, Thousands(Int(total.at("requests"))), " requests of ",
                  Thousands(Int(report.at("files"))), " files, ", Thousands(Int(total.at("prompt_tokens"))),
                  " prompt tokens");
  if (const int64_t estimated = Int(report.at("estimated_requests")); estimated > 0)
    absl::StrAppend(&out, " (of ", Thousands(estimated), " requests estimated from bytes)");
  absl::StrAppend(&out, "\n");
  if (const int64_t skipped = Int(report.at("skipped")); skipped > 0)
    absl::StrAppend(&out, Thousands(skipped), " records without a prompt, or failed, left out\n");
  if (const int64_t bad = Int(report.at("bad_records")); bad > 0)
    absl::StrAppend(&out, Thousands(bad), " records cannot be read (named on standard error)\n");
  if (report.at("forgotten").as_bool())
    absl::StrAppend(&out,
                    "the bound on memory was reached: what was seen long before counts as new (--memory)\n");
}

}  // namespace

json::object AuditJson(const AuditInput& input, const router::ReuseAudit& audit) {
  json::array findings;
  for (const router::DivergencePlace& place : audit.Findings()) findings.push_back(FindingJson(audit, place));
  json::array named;
  for (const std::string& record : input.named) named.emplace_back(record);
  return {{"files", input.files},
          {"skipped", input.skipped},
          {"bad_records", input.bad},
          {"first_bad_records", std::move(named)},
          {"estimated_requests", audit.estimated()},
          {"forgotten", audit.forgotten()},
          {"ceiling_hit_rate", audit.total().ceiling_rate()},
          {"total", SumsJson(audit.total())},
          {"causes", CausesJson(audit.total())},
          {"alarm", AlarmJson(audit.total())},
          {"findings", std::move(findings)},
          {"by_model", GroupsJson(audit.by_model())},
          {"by_tenant", GroupsJson(audit.by_tenant())},
          {"by_hour", GroupsJson(audit.by_hour())},
          {"by_family", GroupsJson(audit.by_family())}};
}

std::string AuditText(const json::object& report) {
  const json::object& total = report.at("total").as_object();
  std::string out;
  AppendRead(out, report);
  absl::StrAppend(&out, "\nceiling   ", Percent(total.at("ceiling_hit_rate")),
                  "   what one cache that forgets nothing would find\nachieved  ",
                  Percent(total.at("achieved_hit_rate")));
  if (!total.at("achieved_hit_rate").is_null())
    absl::StrAppend(&out, "   by ", Thousands(Int(total.at("reporting_requests"))),
                    " requests that report it (their ceiling ",
                    Percent(total.at("reporting_ceiling_hit_rate")), ")");
  if (!report.at("alarm").is_null()) absl::StrAppend(&out, "\nalarm: ", Str(report.at("alarm")));
  absl::StrAppend(&out, "\n\nwhere the prompt tokens went\n");
  for (const json::value& row : report.at("causes").as_array())
    absl::StrAppend(&out, absl::StrFormat("  %-40s %15s %9s\n", Str(row.at("cause")),
                                          Thousands(Int(row.at("tokens"))), Percent(row.at("share"))));
  if (const int64_t surplus = Int(total.at("surplus_tokens")); surplus > 0)
    absl::StrAppend(&out, "  reported beyond the ceiling: ", Thousands(surplus), "\n");
  const json::array& findings = report.at("findings").as_array();
  absl::StrAppend(
      &out, findings.empty() ? "\nno finding: prompts part where they say something new\n" : "\nfindings\n");
  for (size_t i = 0; i < findings.size(); ++i)
    absl::StrAppend(&out, FindingText(findings[i].as_object(), i + 1));
  return out;
}

}  // namespace kvring::cli
