#include "router/gateway/exchange.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/json_text.h"
#include "common/openai/response_writer.h"
#include "common/random.h"
#include "common/runtime/clock.h"
#include "router/gateway/body_splice.h"
#include "router/gateway/content_decoder.h"

namespace kvring::router {
namespace {

constexpr size_t kKeptString = 64 << 10;  // larger scratch strings are freed between requests

std::string_view PathOf(std::string_view target) { return target.substr(0, target.find('?')); }

net::HttpRequest OwnedRequest(net::ServerConnection& client) {
  const net::RequestHeadView& head = client.head();
  net::HttpRequest request{.method = std::string(head.method), .target = std::string(head.target)};
  for (const net::HeaderField& field : head.fields) request.headers.emplace_back(field.name, field.value);
  request.body = std::move(client.body());
  request.peer = client.peer();
  request.peer_is_loopback = client.peer_is_loopback();
  return request;
}

}  // namespace

SessionKey SessionKeyOf(std::string_view session_name) { return {HashName(session_name)}; }

Exchange::~Exchange() {
  loop_.StopAwaiting(id_);
  if (attempt_ != nullptr) attempt_->Cancel();
}

void Exchange::Reset() {
  openai_ = {};
  model_.clear();
  prompt_ = {};
  session_name_.clear();
  session_source_ = SessionSource::kNone;
  route_ = GenerationRoute::kNone;
  has_prompt_ = body_decoded_ = known_to_router_ = owes_completion_ = refused_ = head_sent_ = first_byte_ =
      scan_ = may_insert_ = paused_ = false;
  attempts_ = losses_ = status_ = 0;
  excluded_.clear();
  key_.reset();
  key_begun_ = false;
  usage_told_.reset();
  last_bytes_.reset();
  answer_head_.clear();
  if (forward_head_.capacity() > kKeptString) std::string().swap(forward_head_);
  if (answer_head_.capacity() > kKeptString) std::string().swap(answer_head_);
}

void Exchange::Begin() {
  Reset();
  started_ = Now();
  id_ = loop_.NextId();
  const net::HeaderField* named = net::FindField(client_.head().fields, "x-request-id");
  if (named != nullptr && IsUsableRequestName(named->value)) {
    name_ = named->value;
  } else {
    name_ = absl::StrCat("req-", absl::Hex(MixBits(loop_.shared().name_salt + id_.value), absl::kZeroPad16));
  }
  Dispatch(PathOf(client_.head().target));
}

void Exchange::Dispatch(std::string_view path) {
  if (AnswerLocally(path)) return;
  if (!path.starts_with("/v1/")) return AnswerAdmin();
  if (path == "/v1/chat/completions") route_ = GenerationRoute::kChat;
  if (path == "/v1/completions") route_ = GenerationRoute::kCompletions;
  if (route_ != GenerationRoute::kNone && client_.head().method != "POST") {
    return ReplyError({405, "invalid_request_error", "method_not_allowed", "", "This route takes POST."},
                      "Allow: POST\r\n");
  }
  if (!Prepare() || !WithinLimits()) return;
  Route();
  Proceed();
}

// Health first: it needs no key. Everything else does, where keys are configured.
bool Exchange::AnswerLocally(std::string_view path) {
  const auto text = [&](int status, std::string_view body) {
    client_.Reply(status, "text/plain", absl::StrCat("x-request-id: ", name_, "\r\n"), body);
    return true;
  };
  if (path == "/healthz") return text(200, "ok\n");
  if (path == "/readyz") {
    const auto views = loop_.shared().guard.With([](Router& router) { return router.Replicas(Now()); });
    const auto up = static_cast<size_t>(std::count_if(
        views.begin(), views.end(), [](const ReplicaView& v) { return v.state == ReplicaState::kUp; }));
    const bool ready =
        up == views.size() && up >= loop_.shared().options.ready_replicas && !loop_.shared().draining;
    return text(ready ? 200 : 503,
                absl::StrCat(up, " of ", std::max(views.size(), loop_.shared().options.ready_replicas),
                             " replicas up\n"));
  }
  if (!Authorized()) {
    ReplyError({401, "authentication_error", "invalid_api_key", "",
                "A valid API key is needed: Authorization: Bearer KEY."},
               "WWW-Authenticate: Bearer\r\n");
    return true;
  }
  if (path == "/metrics") {
    GatewayShared& shared = loop_.shared();
    client_.Reply(
        200, "text/plain; version=0.0.4", "",
        MetricsPage(shared.registry, shared.guard, shared.upstream_counters, shared.client_connections()));
    return true;
  }
  if (client_.head().method == "GET" && (path == "/v1/models" || path.starts_with("/v1/models/"))) {
    AnswerModels(path);
    return true;
  }
  return false;
}

bool Exchange::Authorized() {
  const AccessView& access = loop_.access();
  if (access.open()) return true;
  const net::HeaderField* field = net::FindField(client_.head().fields, "authorization");
  if (field != nullptr) key_ = access.FindBearer(field->value);
  return key_ != nullptr;
}

void Exchange::AnswerModels(std::string_view path) {
  std::vector<openai::ModelEntry> entries;
  for (const std::string& model : loop_.shared().guard.With([](Router& router) { return router.Models(); }))
    entries.push_back({.id = model});
  for (const auto& [alias, model] : loop_.access().aliases) {
    if (loop_.ServesModel(model)) entries.push_back({.id = alias});
  }
  constexpr std::string_view kPrefix = "/v1/models/";
  if (path.starts_with(kPrefix)) {
    const std::string_view wanted = path.substr(kPrefix.size());
    for (const openai::ModelEntry& entry : entries) {
      if (entry.id != wanted) continue;
      std::string body = R"({"id":)";
      AppendJsonString(body, entry.id);
      body += R"(,"object":"model","created":0,"owned_by":"kvring"})";
      return client_.Reply(200, "application/json", OwnLines(), body);
    }
    return ReplyError(openai::ModelNotFound(wanted));
  }
  client_.Reply(200, "application/json", OwnLines(), openai::ModelList(entries, UnixSeconds()));
}

void Exchange::AnswerAdmin() {
  std::optional<net::HttpResponse> response;
  if (loop_.shared().admin) response = loop_.shared().admin(OwnedRequest(client_));
  if (!response)
    return ReplyError({404, "invalid_request_error", "not_found", "", "There is no such route here."});
  std::string type = "application/octet-stream";
  std::string lines = OwnLines();
  for (const auto& [name, value] : response->headers) {
    if (net::EqualIgnoringCase(name, "content-type")) {
      type = value;
    } else if (!net::EqualIgnoringCase(name, "content-length")) {
      absl::StrAppend(&lines, name, ": ", value, "\r\n");
    }
  }
  client_.Reply(response->status, type, lines, response->body);
}

// Reads what routing needs. False: answered with an error.
bool Exchange::Prepare() {
  const bool generates = route_ != GenerationRoute::kNone;
  if (generates && !DecodeBody()) return false;
  std::string& body = client_.body();
  if (generates || body.starts_with('{')) {
    const std::optional<openai::ApiError> error = openai::ReadRequestHead(body, openai_);
    if (error && generates) {
      loop_.shared().metrics.malformed_requests.Add();
      ReplyError(*error);
      return false;
    }
    if (error) openai_ = {};
  }
  model_ = loop_.ResolveModel(openai_.model);
  if (model_ != openai_.model && !openai_.model.empty()) SpliceModel();
  if (key_ != nullptr && !key_->salt().empty() && generates) SpliceSalt();
  const CacheIdentity identity{.model = model_, .salt = openai_.cache_salt};
  has_prompt_ = true;
  if (!openai_.token_ids.empty()) {
    prompt_ = MakePromptKey(identity, std::span<const TokenId>(openai_.token_ids));
  } else if (!openai_.canonical.empty()) {
    prompt_ = MakePromptKey(identity, openai_.canonical);
  } else {
    has_prompt_ = false;
  }
  FindSession();
  return true;
}

bool Exchange::DecodeBody() {
  // Lines of one name are one list: two of them are two codings, one in the other.
  std::string coding;
  for (const net::HeaderField& field : client_.head().fields) {
    if (!net::EqualIgnoringCase(field.name, "content-encoding")) continue;
    absl::StrAppend(&coding, coding.empty() ? "" : ", ", Absl(field.value));
  }
  if (coding.empty()) return true;
  if (const auto error = DecodeContent(coding, loop_.shared().options.http.max_body_bytes, client_.body())) {
    ReplyError(*error);
    return false;
  }
  body_decoded_ = true;
  return true;
}

// Only the value of `model` changes; the name that the client used stays in the answer as the replica gives
// it.
void Exchange::SpliceModel() { SpliceString(client_.body(), "model", model_); }

// The tenant's salt stands over a client's own: nobody enters a cache by naming its salt.
void Exchange::SpliceSalt() {
  openai_.cache_salt = key_->salt();
  SetString(client_.body(), "cache_salt", openai_.cache_salt);
}

void Exchange::FindSession() {
  const auto take = [&](std::string_view name, SessionSource source) {
    if (session_source_ != SessionSource::kNone || name.empty()) return;
    session_name_ = name;
    session_source_ = source;
  };
  for (const SessionRule& rule : loop_.shared().session_rules) {
    switch (rule.kind) {
      case SessionRuleKind::kHeader:
        if (const net::HeaderField* field = net::FindField(client_.head().fields, rule.header))
          take(field->value, SessionSource::kHeader);
        break;
      case SessionRuleKind::kPromptCacheKey:
        take(openai_.prompt_cache_key, SessionSource::kPromptCacheKey);
        break;
      case SessionRuleKind::kUser:
        take(openai_.user, SessionSource::kUser);
        break;
    }
  }
}

// The router's own header lines of an answer.
std::string Exchange::OwnLines() const {
  std::string lines;
  lines.reserve(160);
  lines.append("x-request-id: ").append(name_).append("\r\n");
  if (refused_)
    return lines.append("x-kvring-reason: ").append(RefusalName(decision_.refusal)).append("\r\n");
  if (!loop_.shared().options.decision_headers || !known_to_router_) return lines;
  lines.append("x-kvring-replica: ").append(endpoint_ ? std::string_view(endpoint_->name) : "unknown");
  lines.append("\r\nx-kvring-reason: ").append(ReasonName(decision_.reason));
  lines.append("\r\nx-kvring-predicted-cached-tokens: ");
  AppendJsonInt(lines, decision_.predicted_cached_tokens);
  return lines.append("\r\n");
}

void Exchange::ReplyError(const openai::ApiError& error, std::string_view extra_lines) {
  std::string lines = OwnLines();
  lines.append(extra_lines);
  client_.Reply(error.http_status, "application/json", lines, error.ToJson());
}

}  // namespace kvring::router
