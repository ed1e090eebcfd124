#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/cli/audit_report.h"
#include "deploy/cli/markup.h"

namespace kvring::cli {
namespace {

namespace json = boost::json;

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>kvring audit</title><style>
:root{color-scheme:light dark;--line:#8884;--bar:#2f7dd1}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{background:var(--bar);height:.8rem;border-radius:2px;min-width:1px}
.big{display:flex;gap:3rem;flex-wrap:wrap}.big b{display:block;font-size:2rem}
.alarm{border-left:4px solid #c33;padding-left:.8rem}code{overflow-wrap:anywhere}
article{border:1px solid var(--line);border-radius:6px;padding:.2rem 1rem;margin:1rem 0}
.wide{overflow-x:auto}
</style></head><body>
)";

std::string Str(const json::value& value) { return EscapeMarkup(std::string(value.as_string())); }
int64_t Int(const json::value& value) { return value.to_number<int64_t>(); }
std::string Percent(const json::value& share) {
  return share.is_null() ? "not reported" : absl::StrFormat("%.1f&nbsp;%%", 100 * share.as_double());
}

void AppendSummary(std::string& page, const json::object& report) {
  const json::object& total = report.at("total").as_object();
  absl::StrAppend(&page, "<h1>What the hit rate should be</h1>\n<p>", Int(total.at("requests")),
                  " requests, ", Int(total.at("prompt_tokens")),
                  " prompt tokens.</p>\n<div class=\"big\"><div><b>", Percent(total.at("ceiling_hit_rate")),
                  "</b>ceiling</div><div><b>", Percent(total.at("achieved_hit_rate")),
                  "</b>achieved</div></div>\n");
  if (!report.at("alarm").is_null())
    absl::StrAppend(&page, "<p class=\"alarm\" role=\"alert\">", Str(report.at("alarm")), "</p>\n");
}

void AppendCauses(std::string& page, const json::object& report) {
  absl::StrAppend(
      &page,
      "<h2>Where the prompt tokens went</h2>\n<div class=\"wide\"><table><tr><th>cause</th>"
      "<th class=\"n\">tokens</th><th class=\"n\">share</th><th style=\"width:40%\"></th></tr>\n");
  for (const json::value& row : report.at("causes").as_array())
    absl::StrAppend(&page, "<tr><td>", Str(row.at("cause")), "</td><td class=\"n\">", Int(row.at("tokens")),
                    "</td><td class=\"n\">", Percent(row.at("share")),
                    absl::StrFormat("</td><td><div class=\"bar\" style=\"width:%.1f%%\"></div></td></tr>\n",
                                    100 * row.at("share").as_double()));
  absl::StrAppend(&page, "</table></div>\n");
}

void AppendFindings(std::string& page, const json::object& report) {
  absl::StrAppend(&page, "<h2>Findings</h2>\n");
  if (report.at("findings").as_array().empty())
    absl::StrAppend(&page, "<p>None: prompts part where they say something new.</p>\n");
  for (const json::value& f : report.at("findings").as_array()) {
    absl::StrAppend(&page, "<article><h3>", Str(f.at("class")), " in ", Str(f.at("part")), "</h3>\n<p>bytes ",
                    Int(f.at("begin")), " to ", Int(f.at("end")), ": <code>", Str(f.at("now_shape")),
                    "</code>, was <code>", Str(f.at("earlier_shape")), "</code>; ", Int(f.at("requests")),
                    " requests, the last at <code>", Str(f.at("last")), "</code></p>\n<p>Lost ",
                    Int(f.at("lost_tokens")), " tokens; hit rate without it: <b>",
                    Percent(f.at("what_if_hit_rate")), "</b></p>\n<p>", Str(f.at("fix")), "</p></article>\n");
  }
}

void AppendGroups(std::string& page, const json::object& report, const char* key, const char* title) {
  const json::array& groups = report.at(key).as_array();
  if (groups.empty()) return;
  absl::StrAppend(
      &page, "<h2>", title,
      "</h2>\n<div class=\"wide\"><table><tr><th>name</th><th class=\"n\">requests</th>"
      "<th class=\"n\">prompt tokens</th><th class=\"n\">ceiling</th><th class=\"n\">achieved</th></tr>\n");
  for (const json::value& group : groups)
    absl::StrAppend(&page, "<tr><td>", Str(group.at("name")), "</td><td class=\"n\">",
                    Int(group.at("requests")), "</td><td class=\"n\">", Int(group.at("prompt_tokens")),
                    "</td><td class=\"n\">", Percent(group.at("ceiling_hit_rate")), "</td><td class=\"n\">",
                    Percent(group.at("achieved_hit_rate")), "</td></tr>\n");
  absl::StrAppend(&page, "</table></div>\n");
}

}  // namespace

std::string AuditPage(const json::object& report) {
  std::string page = kHead;
  AppendSummary(page, report);
  AppendCauses(page, report);
  AppendFindings(page, report);
  AppendGroups(page, report, "by_model", "By model");
  AppendGroups(page, report, "by_tenant", "By tenant");
  AppendGroups(page, report, "by_hour", "By hour");
  AppendGroups(page, report, "by_family", "By prompt family");
  return page + "</body></html>\n";
}

}  // namespace kvring::cli
