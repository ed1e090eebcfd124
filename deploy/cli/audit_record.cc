#include "deploy/cli/audit_record.h"

#include <simdjson.h>

#include <boost/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/absl_view.h"
#include "common/block_hash.h"
#include "common/openai/raw_fields.h"
#include "common/openai/request_head.h"
#include "common/openai/usage_breakdown.h"
#include "common/status_macros.h"

namespace kvring::cli {
namespace {

using openai::RawFields;
constexpr int kMaxDepth = 8;  // how deep a body or a usage may lie

// The text of a raw JSON string; any other scalar as it stands.
std::string TextOf(std::string_view raw) {
  boost::system::error_code error;
  const boost::json::value value =
      boost::json::parse(boost::json::string_view(raw.data(), raw.size()), error);
  if (error || !value.is_string()) return std::string(raw);
  return std::string(value.as_string());
}

bool HasPrompt(const RawFields& fields) {
  return fields.Raw("messages").starts_with('[') || !fields.Raw("prompt").empty() ||
         (!fields.Raw("input").empty() && !fields.Raw("model").empty() &&
          !fields.Raw("input").starts_with('{'));
}

// The request body somewhere in a record: it has a prompt.
absl::StatusOr<std::optional<std::string>> FindBody(std::string_view raw, int depth) {
  if (depth == kMaxDepth) return std::nullopt;
  if (raw.starts_with('"')) {
    const std::string text = TextOf(raw);
    return text.starts_with('{') ? FindBody(text, depth + 1) : std::nullopt;
  }
  if (!raw.starts_with('{')) return std::nullopt;
  KVRING_ASSIGN_OR_RETURN(const RawFields fields, RawFields::Read(raw));
  if (HasPrompt(fields)) return std::string(raw);
  for (const std::string_view name : {"request", "req", "body", "request_body", "params", "payload", "input",
                                      "data", "postData", "text", "json", "kwargs"}) {
    KVRING_ASSIGN_OR_RETURN(auto body, FindBody(fields.Raw(name), depth + 1));
    if (body) return body;
  }
  return std::nullopt;
}

std::optional<std::string> FindUsage(std::string_view raw, int depth);

// Data lines of an event stream: the first usage with prompt tokens.
std::optional<std::string> UsageOfStream(std::string_view text, int depth) {
  constexpr std::string_view kData = "data:";
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.starts_with(kData) || line.find("\"usage\"") == std::string_view::npos) continue;
    line.remove_prefix(line.find_first_not_of(' ', kData.size()));
    if (auto usage = FindUsage(line, depth + 1)) return usage;
  }
  return std::nullopt;
}

std::optional<std::string> UsageOfList(std::string_view raw, int depth) {
  simdjson::dom::parser parser;
  simdjson::dom::array array;
  if (parser.parse(raw.data(), raw.size()).get_array().get(array)) return std::nullopt;
  for (const simdjson::dom::element chunk : array)
    if (auto usage = FindUsage(simdjson::minify(chunk), depth + 1)) return usage;
  return std::nullopt;
}

std::optional<std::string> FindUsage(std::string_view raw, int depth) {
  if (depth == kMaxDepth || raw.empty()) return std::nullopt;
  if (raw.starts_with('[')) return UsageOfList(raw, depth);
  if (raw.starts_with('"')) {
    const std::string text = TextOf(raw);
    return text.starts_with('{') ? FindUsage(text, depth + 1) : UsageOfStream(text, depth);
  }
  const auto fields =
      raw.starts_with('{') ? RawFields::Read(raw) : absl::StatusOr<RawFields>(absl::NotFoundError(""));
  if (!fields.ok()) return std::nullopt;
  if (!fields->Raw("prompt_tokens").empty() || !fields->Raw("input_tokens").empty()) return std::string(raw);
  if (fields->Raw("encoding") == "\"base64\"") {
    std::string decoded;
    if (!absl::Base64Unescape(TextOf(fields->Raw("text")), &decoded)) return std::nullopt;
    return decoded.starts_with('{') ? FindUsage(decoded, depth + 1) : UsageOfStream(decoded, depth);
  }
  for (const std::string_view name : {"usage", "response", "resp", "response_body", "body", "message",
                                      "output", "result", "completion", "data", "content", "text"})
    if (auto usage = FindUsage(fields->Raw(name), depth + 1)) return usage;
  return std::nullopt;
}

// A body of the Responses form as one of the chat form.
absl::StatusOr<std::string> AsChat(const std::string& body) {
  KVRING_ASSIGN_OR_RETURN(const RawFields fields, RawFields::Read(body));
  const std::string_view input = fields.Raw("input");
  if (fields.Raw("messages").starts_with('[') || !fields.Raw("prompt").empty()) return body;
  const std::string messages = input.starts_with('[')
                                   ? std::string(input)
                                   : absl::StrCat("[{\"role\":\"user\",\"content\":", Absl(input), "}]");
  std::string chat = absl::StrCat("{\"messages\":", messages);
  for (const auto& [from, to] : {std::pair{"model", "model"}, {"instructions", "system"}, {"tools", "tools"}})
    if (const std::string_view raw = fields.Raw(from); !raw.empty())
      absl::StrAppend(&chat, ",\"", to, "\":", Absl(raw));
  return chat + "}";
}

absl::Status ReadPrompt(std::string body, router::LoggedRequest& out) {
  openai::RequestHead head;
  KVRING_ASSIGN_OR_RETURN(body, AsChat(body));
  if (const auto error = openai::ReadRequestHead(body, head))
    return absl::InvalidArgumentError(error->message);
  out.model = head.model;
  out.salt = head.cache_salt;
  out.tenant = head.user;
  out.prompt = std::move(head.canonical);
  out.prompt.insert(head.messages_begin, head.system);
  if (head.token_ids.empty()) return absl::OkStatus();
  out.token_ids = true;
  out.prompt.assign(reinterpret_cast<const char*>(head.token_ids.data()),
                    head.token_ids.size() * sizeof(TokenId));
  return absl::OkStatus();
}

absl::Status ReadUsage(std::string_view record, router::LoggedRequest& out) {
  const auto json = FindUsage(record, 0);
  if (!json) return absl::OkStatus();
  KVRING_ASSIGN_OR_RETURN(const openai::UsageBreakdown usage, openai::ReadUsageBreakdown(*json));
  out.prompt_tokens = usage.input();
  if (usage.cache_told) out.cached_tokens = usage.read;
  return absl::OkStatus();
}

// "2026-08-21 14h" of an ISO time or of seconds or milliseconds since 1970; empty where it is neither.
std::string HourOf(std::string_view raw) {
  const std::string text = TextOf(raw);
  absl::Time time;
  std::string error;
  double number = 0;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    if (!absl::SimpleAtod(text, &number)) return "";
    constexpr double kMillisFrom = 1e11;
    time = absl::FromUnixMillis(static_cast<int64_t>(number >= kMillisFrom ? number : number * 1000));
  }
  return absl::FormatTime("%Y-%m-%d %Hh", time, absl::UTCTimeZone());
}

// Names are shown as they are; a key only by its hash.
std::string TenantOf(const RawFields& record, const std::string& user) {
  if (const auto name =
          record.FirstOf({"tenant", "tenant_id", "organization", "org", "org_id", "team", "customer"});
      !name.empty())
    return TextOf(name);
  if (const auto key = record.FirstOf({"api_key", "key", "api_key_id", "api_key_hash"}); !key.empty())
    return absl::StrCat("key ", absl::Hex(HashName(TextOf(key)) >> 32, absl::kZeroPad8));
  return user;
}

bool Failed(const RawFields& record) {
  int status = 0;
  if (absl::SimpleAtoi(Absl(record.FirstOf({"status", "status_code", "http_status"})), &status))
    return status >= 400;
  const std::string_view response = record.FirstOf({"response", "resp"});
  if (!response.starts_with('{')) return false;
  const auto fields = RawFields::Read(response);
  return fields.ok() && absl::SimpleAtoi(Absl(fields->FirstOf({"status", "status_code"})), &status) &&
         status >= 400;
}

}  // namespace

absl::StatusOr<std::optional<router::LoggedRequest>> ReadLogRecord(std::string_view json) {
  KVRING_ASSIGN_OR_RETURN(const RawFields record, RawFields::Read(json));
  KVRING_ASSIGN_OR_RETURN(std::optional<std::string> body, FindBody(json, 0));
  if (!body || Failed(record)) return std::nullopt;
  router::LoggedRequest request;
  KVRING_RETURN_IF_ERROR(ReadPrompt(*std::move(body), request));
  if (request.prompt.empty()) return std::nullopt;
  KVRING_RETURN_IF_ERROR(ReadUsage(json, request));
  request.tenant = TenantOf(record, request.tenant);
  const std::string_view time =
      record.FirstOf({"timestamp", "ts", "time", "created_at", "start_time", "startTime", "startedDateTime",
                      "created", "request_time", "date"});
  if (!time.empty()) request.hour = HourOf(time);
  return request;
}

}  // namespace kvring::cli
