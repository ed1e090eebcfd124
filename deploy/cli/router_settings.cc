#include "deploy/cli/router_settings.h"

#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/runtime/entropy.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"
#include "deploy/cli/router_tls.h"
#include "router/discovery/membership.h"

namespace kvring::cli {
namespace {

constexpr size_t kMaxKeyBytes = 64 << 10;
constexpr double kLargestAmount = 1e6;

Duration Millis(uint32_t value, uint32_t fallback) {
  return std::chrono::milliseconds(value > 0 ? value : fallback);
}

template <class T>
T Or(T value, T fallback) {
  return value > T{} ? value : fallback;
}

absl::Status CheckAddress(const char* field, const std::string& text) {
  const auto address = net::ParseAddress(text);
  if (address.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, ": ", std::string(address.status().message())));
}

absl::Status CheckKvEvents(const v1::KvEvents& events, const std::string& path) {
  const auto check = [&](const char* field, const std::string& endpoint) {
    const absl::Status status = router::CheckKvEndpoint(endpoint);
    return status.ok()
               ? status
               : absl::InvalidArgumentError(absl::StrCat(path, ".kv_events.", field, ": ", status.message()));
  };
  KVRING_RETURN_IF_ERROR(check("endpoint", events.endpoint()));
  return events.replay().empty() ? absl::OkStatus() : check("replay", events.replay());
}

// Not a number is refused as well: YAML has one (.nan).
absl::Status CheckAmount(const std::string& field, double value, double most) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " must be a number from 0 to ", most));
}

absl::Status CheckBackend(const v1::Backend& backend, int index) {
  const std::string path = absl::StrCat("backends[", index, "]");
  const auto url = net::ParseUrl(backend.url());
  if (!url.ok())
    return absl::InvalidArgumentError(absl::StrCat(path, ".url: ", std::string(url.status().message())));
  if (url->scheme != "http" && url->scheme != "grpc") {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ".url: '", backend.url(), "' is neither http:// nor grpc://"));
  }
  if (backend.has_kv_events()) KVRING_RETURN_IF_ERROR(CheckKvEvents(backend.kv_events(), path));
  if (backend.kv_tokens() < 0) return absl::InvalidArgumentError(path + ".kv_tokens must not be negative");
  if (!backend.api_key().empty() && !backend.api_key_file().empty())
    return absl::InvalidArgumentError(path + ": api_key and api_key_file exclude each other");
  return CheckAmount(path + ".weight", backend.weight(), kLargestAmount);
}

absl::Status CheckSessionKey(const std::string& key) {
  if (key == "body:prompt_cache_key" || key == "body:user" || (key.starts_with("header:") && key.size() > 7))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("session_keys: '", key, "' is not header:NAME, body:prompt_cache_key or body:user"));
}

absl::Status CheckAccess(const v1::RouterConfig& config) {
  std::set<std::string> names, aliases;
  for (int i = 0; i < config.api_keys_size(); ++i) {
    const v1::ApiKey& key = config.api_keys(i);
    const std::string path = absl::StrCat("api_keys[", i, "]");
    if (key.name().empty()) return absl::InvalidArgumentError(path + ".name is missing");
    if (!names.insert(key.name()).second)
      return absl::InvalidArgumentError(absl::StrCat(path, ".name: '", key.name(), "' is there twice"));
    if (key.key().empty() == key.key_file().empty())
      return absl::InvalidArgumentError(path + ": one of key and key_file must be set");
  }
  for (int i = 0; i < config.aliases_size(); ++i) {
    const v1::Alias& alias = config.aliases(i);
    const std::string path = absl::StrCat("aliases[", i, "]");
    if (alias.name().empty()) return absl::InvalidArgumentError(path + ".name is missing");
    if (alias.model().empty()) return absl::InvalidArgumentError(path + ".model is missing");
    if (!aliases.insert(alias.name()).second)
      return absl::InvalidArgumentError(absl::StrCat(path, ".name: '", alias.name(), "' is there twice"));
  }
  return absl::OkStatus();
}

// A key never stands in an error, its file does.
absl::Status ReadKeyFile(const std::string& field, const std::string& file, std::string& key) {
  auto text = ReadFile(file, kMaxKeyBytes);
  if (!text.ok())
    return absl::Status(text.status().code(), absl::StrCat(field, ": ", text.status().message()));
  key = std::string(absl::StripAsciiWhitespace(*text));
  if (key.empty()) return absl::InvalidArgumentError(absl::StrCat(field, ": ", file, " is empty"));
  return absl::OkStatus();
}

router::ReplicaSpec SpecOf(const v1::Backend& backend) {
  router::ReplicaSpec spec;
  spec.url = backend.url();
  spec.models.assign(backend.models().begin(), backend.models().end());
  spec.weight = backend.has_weight() ? backend.weight() : 1;
  spec.kv_tokens = backend.kv_tokens();
  spec.kv_source =
      backend.kv_tokens() > 0 ? router::CapacitySource::kConfig : router::CapacitySource::kUnknown;
  return spec;
}

}  // namespace

absl::Status ReadKeyFiles(v1::RouterConfig& config) {
  for (int i = 0; i < config.api_keys_size(); ++i) {
    v1::ApiKey& key = *config.mutable_api_keys(i);
    if (key.key_file().empty()) continue;
    KVRING_RETURN_IF_ERROR(
        ReadKeyFile(absl::StrCat("api_keys[", i, "].key_file"), key.key_file(), *key.mutable_key()));
    key.clear_key_file();
  }
  for (int i = 0; i < config.backends_size(); ++i) {
    v1::Backend& backend = *config.mutable_backends(i);
    if (backend.api_key_file().empty()) continue;
    KVRING_RETURN_IF_ERROR(ReadKeyFile(absl::StrCat("backends[", i, "].api_key_file"), backend.api_key_file(),
                                       *backend.mutable_api_key()));
    backend.clear_api_key_file();
  }
  return absl::OkStatus();
}

void FillDefaults(v1::RouterConfig& config) {
  if (config.listen().empty()) config.set_listen("127.0.0.1:8080");
  if (config.policy().empty()) config.set_policy("cache-aware");
  if (config.threads() == 0) config.set_threads(std::max(1u, std::thread::hardware_concurrency()));
  if (config.seed() == 0) config.set_seed(RandomSeed());
}

router::RouterConfig CoreConfig(const v1::RouterConfig& config) {
  router::RouterConfig core;
  core.policy = config.policy();
  core.seed = config.seed();
  core.health.unhealthy_after = static_cast<int>(Or(config.health().unhealthy_after(), 3u));
  core.health.healthy_after = static_cast<int>(Or(config.health().healthy_after(), 2u));
  core.health.eject_after = static_cast<int>(Or(config.health().eject_after(), 5u));
  core.health.eject_time = Millis(config.health().eject_ms(), 10'000);
  if (config.health().has_slow_start_ms())
    core.health.slow_start = std::chrono::milliseconds(config.health().slow_start_ms());
  if (config.health().refuse_in_panic()) core.health.panic = router::PanicRule::kRefuse;
  if (config.index_bytes() > 0) core.index_bytes = static_cast<int64_t>(config.index_bytes());
  const v1::Limits& limits = config.limits();
  if (limits.has_first_token_ms()) core.patience = std::chrono::milliseconds(limits.first_token_ms());
  if (limits.has_retry_share()) core.retries.share = limits.retry_share();
  if (limits.has_retries_per_second()) core.retries.per_second = limits.retries_per_second();
  core.admission.max_in_flight_per_replica =
      static_cast<int32_t>(std::min(limits.max_in_flight_per_replica(), uint32_t{INT32_MAX}));
  core.admission.queue_length = limits.has_queue_length()                ? limits.queue_length()
                                : limits.max_in_flight_per_replica() > 0 ? 1024
                                                                         : 0;
  core.admission.queue_timeout = Millis(limits.queue_timeout_ms(), 30'000);
  return core;
}

router::GatewayOptions HttpOptions(const v1::RouterConfig& config, size_t ready_replicas) {
  const v1::Limits& limits = config.limits();
  router::GatewayOptions options;
  options.http.listen = config.listen();
  options.http.threads = static_cast<int>(config.threads());
  options.http.max_body_bytes = Or(limits.max_body_bytes(), uint64_t{32} << 20);
  options.http.header_timeout = Millis(limits.header_timeout_ms(), 10'000);
  options.http.max_connections = Or(limits.max_connections(), 20'000u);
  options.timeouts.connect = Millis(limits.connect_timeout_ms(), 2'000);
  options.timeouts.first_byte = Millis(limits.first_byte_timeout_ms(), 300'000);
  options.timeouts.idle = Millis(limits.idle_timeout_ms(), 300'000);
  options.probes.interval = Millis(config.health().interval_ms(), 1'000);
  options.probes.timeout = Millis(config.health().timeout_ms(), 1'000);
  options.max_attempts = static_cast<int>(Or(limits.max_attempts(), 3u));
  options.decision_headers = !config.has_decision_headers() || config.decision_headers();
  if (config.session_keys_size() > 0)
    options.session_keys.assign(config.session_keys().begin(), config.session_keys().end());
  options.max_losses = static_cast<int>(Or(limits.max_losses(), 2u));
  options.share_port = config.share_port();
  options.decision_log_share = config.decision_log_share();
  options.heartbeat = std::chrono::milliseconds(config.heartbeat_ms());
  options.ready_replicas = ready_replicas;
  return options;
}

router::GrpcFrontOptions GrpcOptions(const v1::RouterConfig& config) {
  const router::GatewayOptions http = HttpOptions(config, 0);
  router::GrpcFrontOptions options;
  options.listen = config.grpc_listen();
  options.share_port = http.share_port;
  options.max_attempts = http.max_attempts;
  options.max_losses = http.max_losses;
  options.decision_metadata = http.decision_headers;
  options.decision_log_share = http.decision_log_share;
  options.timeouts = http.timeouts;
  return options;
}

router::AccessRules AccessOf(const v1::RouterConfig& config) {
  router::AccessRules rules;
  for (const v1::ApiKey& key : config.api_keys()) {
    rules.keys.push_back({.name = key.name(),
                          .key = key.key(),
                          .limits = {.requests_per_minute = static_cast<double>(key.requests_per_minute()),
                                     .tokens_per_minute = static_cast<double>(key.tokens_per_minute()),
                                     .max_in_flight = static_cast<int32_t>(
                                         std::min(key.max_in_flight(), uint32_t{INT32_MAX}))},
                          .isolate = key.isolate()});
  }
  for (const v1::Alias& alias : config.aliases()) rules.aliases[alias.name()] = alias.model();
  for (const v1::Backend& backend : config.backends()) {
    const auto url = router::NormalBackendUrl(backend.url());
    if (url.ok() && !backend.api_key().empty()) rules.replica_keys[*url] = backend.api_key();
  }
  return rules;
}

std::vector<router::ReplicaSpec> BackendsOf(const v1::RouterConfig& config) {
  std::vector<router::ReplicaSpec> backends;
  for (const v1::Backend& backend : config.backends()) backends.push_back(SpecOf(backend));
  return backends;
}

std::vector<router::KvSource> KvSourcesOf(const v1::RouterConfig& config) {
  std::vector<router::KvSource> sources;
  for (const v1::Backend& backend : config.backends()) {
    const auto url = router::NormalBackendUrl(backend.url());
    if (!url.ok() || !backend.has_kv_events()) continue;
    const v1::KvEvents& events = backend.kv_events();
    sources.push_back({*url, events.endpoint(), events.replay(), events.topic()});
  }
  return sources;
}

std::string FieldsForRestart(const v1::RouterConfig& running, const v1::RouterConfig& wanted) {
  v1::RouterConfig a = running, b = wanted;
  for (v1::RouterConfig* config : {&a, &b}) {
    config->clear_backends();
    config->clear_api_keys();
    config->clear_aliases();
  }
  std::string changes;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&changes);
  differencer.Compare(a, b);
  return changes;
}

absl::Status CheckRouterConfig(const v1::RouterConfig& given) {
  v1::RouterConfig config = given;
  FillDefaults(config);
  KVRING_RETURN_IF_ERROR(CheckAddress("listen", config.listen()));
  if (!config.grpc_listen().empty())
    KVRING_RETURN_IF_ERROR(CheckAddress("grpc_listen", config.grpc_listen()));
  if (!config.admin().listen().empty())
    KVRING_RETURN_IF_ERROR(CheckAddress("admin.listen", config.admin().listen()));
  for (int i = 0; i < config.backends_size(); ++i)
    KVRING_RETURN_IF_ERROR(CheckBackend(config.backends(i), i));
  KVRING_RETURN_IF_ERROR(CheckAccess(config));
  KVRING_RETURN_IF_ERROR(ServerTlsOf(config).status());
  KVRING_RETURN_IF_ERROR(ClientTlsOf(config).status());
  KVRING_RETURN_IF_ERROR(CheckAmount("limits.retry_share", config.limits().retry_share(), kLargestAmount));
  KVRING_RETURN_IF_ERROR(
      CheckAmount("limits.retries_per_second", config.limits().retries_per_second(), kLargestAmount));
  KVRING_RETURN_IF_ERROR(CheckAmount("decision_log_share", config.decision_log_share(), 1));
  for (const std::string& key : config.session_keys()) KVRING_RETURN_IF_ERROR(CheckSessionKey(key));
  const auto names = router::Router::PolicyNames();
  if (std::find(names.begin(), names.end(), config.policy()) != names.end() || config.policy() == "lpwl")
    return absl::OkStatus();
  std::string known;
  for (const std::string& name : names) absl::StrAppend(&known, known.empty() ? "" : ", ", name);
  return absl::InvalidArgumentError(
      absl::StrCat("policy: '", config.policy(), "' is unknown (known: ", known, ")"));
}

}  // namespace kvring::cli
