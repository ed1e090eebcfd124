// kvring router: the load balancer in front of replicas of any kind.
#include <csignal>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/runtime/log.h"
#include "common/runtime/signals.h"
#include "deploy/cli/command.h"
#include "deploy/cli/router_config.h"
#include "deploy/cli/router_process.h"
#include "deploy/cli/router_settings.h"
#include "router/router.h"

namespace kvring::cli {
namespace {

struct Options {
  std::string config;
  std::string listen;
  std::string grpc_listen;
  std::string policy;
  std::vector<std::string> backends;
  uint32_t threads = 0;
  uint64_t seed = 0;
  bool check = false;
  bool share_port = false;
  bool no_decision_headers = false;
  int drain_seconds = 30;
};

// "URL" or "URL,kv_tokens=N,weight=W".
absl::Status AddBackend(const std::string& text, v1::RouterConfig& config) {
  v1::Backend& backend = *config.add_backends();
  std::istringstream parts(text);
  std::string part;
  std::getline(parts, part, ',');
  backend.set_url(part);
  while (std::getline(parts, part, ',')) {
    const size_t equals = part.find('=');
    const std::string key = part.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : part.substr(equals + 1);
    double number = 0;
    if ((key != "kv_tokens" && key != "weight") || !CLI::detail::lexical_cast(value, number) || number < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--backend ", text, ": '", part, "' is not kv_tokens=N or weight=W"));
    }
    if (key == "weight") {
      backend.set_weight(number);
    } else {
      backend.set_kv_tokens(static_cast<int64_t>(number));
    }
  }
  return absl::OkStatus();
}

// The file's settings, with what the flags say instead.
absl::StatusOr<v1::RouterConfig> Resolve(const Options& options) {
  v1::RouterConfig config;
  if (!options.config.empty()) {
    auto read = ReadRouterConfig(options.config);
    if (!read.ok()) return read.status();
    config = *std::move(read);
  }
  if (!options.listen.empty()) config.set_listen(options.listen);
  if (!options.grpc_listen.empty()) config.set_grpc_listen(options.grpc_listen);
  if (!options.policy.empty()) config.set_policy(options.policy);
  if (options.threads > 0) config.set_threads(options.threads);
  if (options.seed > 0) config.set_seed(options.seed);
  if (options.no_decision_headers) config.set_decision_headers(false);
  if (options.share_port) config.set_share_port(true);
  for (const std::string& backend : options.backends) {
    if (absl::Status status = AddBackend(backend, config); !status.ok()) return status;
  }
  if (absl::Status status = ReadKeyFiles(config); !status.ok()) return status;
  if (absl::Status status = CheckRouterConfig(config); !status.ok()) return status;
  return config;
}

// Applies the configuration as it is now, if it differs from what runs. A file that is wrong changes nothing
// and is said once.
class Follower {
 public:
  Follower(const Options& options, RouterProcess& router, const v1::RouterConfig& running)
      : options_(options), router_(router), seen_(running.SerializeAsString()) {}

  void Look() {
    const auto config = Resolve(options_);
    const std::string seen =
        config.ok() ? config->SerializeAsString() : std::string(config.status().message());
    if (seen == seen_) return;
    seen_ = seen;
    const absl::Status status = config.ok() ? router_.Reload(*config) : config.status();
    if (!status.ok())
      Log(LogLevel::kError, "router", "configuration not applied",
          {{"error", std::string(status.message())}});
  }

 private:
  const Options& options_;
  RouterProcess& router_;
  std::string seen_;
};

// Until told to end. With a file: SIGHUP looks at it at once, otherwise it is looked at every second.
int Serve(const Options& options, RouterProcess& router, const v1::RouterConfig& config) {
  if (options.config.empty()) return WaitForSignal();
  Follower follower(options, router, config);
  while (true) {
    const int signal = WaitForSignal(std::chrono::seconds(1));
    if (signal != 0 && signal != SIGHUP) return signal;
    follower.Look();
  }
}

int Run(const Options& options) {
  const auto config = Resolve(options);
  if (!config.ok()) {
    Fail(config.status());
    return 2;
  }
  if (options.check) {
    std::printf("the configuration is valid\n");
    return 0;
  }
  auto router = RouterProcess::Start(*config, /*ready_replicas=*/1);
  if (!router.ok()) return Fail(router.status());
  const int signal = Serve(options, **router, *config);
  Log(LogLevel::kInfo, "router", "stopping", {{"signal", signal}});
  (*router)->Stop(std::chrono::seconds(options.drain_seconds));
  return 0;
}

std::string PolicyList() {
  std::string list;
  for (const std::string& name : router::Router::PolicyNames())
    absl::StrAppend(&list, list.empty() ? "" : ", ", name);
  return list;
}

}  // namespace

void AddRouter(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  CLI::App* command = app.add_subcommand("router", "Cache-aware load balancer in front of replicas");
  command->add_option("--config", options->config,
                      "YAML file; flags stand over it; followed while running (backends, api_keys, aliases)");
  command->add_option("--listen", options->listen, "HTTP address:port (default 127.0.0.1:8080)");
  command->add_option("--grpc-listen", options->grpc_listen, "gRPC address:port (default: none)");
  command->add_option("--policy", options->policy, PolicyList());
  command->add_option("--backend", options->backends,
                      "http://host:port or grpc://host:port[,kv_tokens=N][,weight=W] (repeatable)");
  command->add_option("--threads", options->threads, "data-path threads (default: cores)")
      ->check(CLI::Range(1, 256));
  command->add_option("--seed", options->seed, "seed of random choices (default: drawn)");
  command->add_flag("--no-decision-headers", options->no_decision_headers,
                    "answers do not tell replica and reason");
  command->add_flag("--share-port", options->share_port,
                    "let a second router listen on the same ports (restarts without a gap)");
  command->add_flag("--check", options->check, "only check the configuration");
  command->add_option("--drain-seconds", options->drain_seconds, "time for running requests at SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->footer(
      "Examples:\n  kvring router --backend http://10.0.0.1:8000 --backend http://10.0.0.2:8000\n"
      "  kvring router --config router.yaml --check");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
