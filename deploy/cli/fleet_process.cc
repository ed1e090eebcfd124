#include "deploy/cli/fleet_process.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "common/check.h"
#include "common/net/address.h"
#include "common/net/http_client.h"
#include "common/runtime/child_process.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "common/status_macros.h"
#include "deploy/cli/free_ports.h"
#include "deploy/cli/router_process.h"

namespace kvring::cli {
namespace {

constexpr absl::Duration kWatchInterval = absl::Milliseconds(50);
constexpr Duration kFirstPause = std::chrono::milliseconds(200);
constexpr Duration kLastPause = std::chrono::seconds(10);
constexpr Duration kSteady = std::chrono::seconds(30);  // a life so long makes the next pause short again

}  // namespace

class FleetProcess::Impl {
 public:
  absl::Status Start(const FleetOptions& options) {
    options_ = options;
    v1::RouterConfig config;
    config.set_listen(options.listen);
    config.set_grpc_listen(options.grpc_listen);
    config.set_policy(options.policy);
    config.set_seed(options.seed);
    KVRING_ASSIGN_OR_RETURN(router_, RouterProcess::Start(config, static_cast<size_t>(options.replicas)));
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    threads_ =
        options.threads_per_replica > 0 ? options.threads_per_replica : std::max(1, cores / options.replicas);
    KVRING_ASSIGN_OR_RETURN(const std::vector<int> ports, FreePorts(2 * options.replicas));
    absl::MutexLock lock(&mutex_);
    for (int i = 0; i < options.replicas; ++i) {
      Child& child = children_.emplace_back();
      child.http_port = ports[static_cast<size_t>(2 * i)];
      child.grpc_port = ports[static_cast<size_t>(2 * i + 1)];
      KVRING_RETURN_IF_ERROR(Launch(child));
    }
    watcher_ = std::thread([this] { Watch(); });
    return absl::OkStatus();
  }

  ~Impl() {
    stopping_.Notify();
    if (watcher_.joinable()) watcher_.join();
    absl::MutexLock lock(&mutex_);
    for (Child& child : children_) {
      if (child.pid > 0) StopChild(child.pid, /*wait_ms=*/3000);
    }
  }

  const RouterProcess& router() const { return *router_; }

  std::vector<FleetReplica> replicas() const {
    absl::MutexLock lock(&mutex_);
    std::vector<FleetReplica> out;
    for (const Child& child : children_)
      out.push_back({Address(child.http_port), Address(child.grpc_port), child.pid});
    return out;
  }

 private:
  struct Child {
    int http_port = 0;
    int grpc_port = 0;
    pid_t pid = 0;
    Instant started;
    Instant restart_at;
    Duration pause = kFirstPause;
  };

  static std::string Address(int port) { return absl::StrCat("127.0.0.1:", port); }

  absl::Status Launch(Child& child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::string> arguments = {SelfPath(),        "replica",
                                          "--model",         options_.model,
                                          "--listen",        Address(child.http_port),
                                          "--grpc-listen",   Address(child.grpc_port),
                                          "--router",        router_->grpc_address(),
                                          "--threads",       std::to_string(threads_),
                                          "--drain-seconds", "2",
                                          "--log-level",     options_.log_level};
    if (!options_.kv_tokens.empty()) arguments.insert(arguments.end(), {"--kv-tokens", options_.kv_tokens});
    if (options_.exact) arguments.push_back("--exact");
    if (!options_.kv_type.empty()) arguments.insert(arguments.end(), {"--kv-type", options_.kv_type});
    KVRING_ASSIGN_OR_RETURN(child.pid, StartChild(arguments));
    child.started = Now();
    return absl::OkStatus();
  }

  void Watch() {
    while (!stopping_.WaitForNotificationWithTimeout(kWatchInterval)) {
      absl::MutexLock lock(&mutex_);
      for (Child& child : children_) WatchOne(child);
    }
  }

  void WatchOne(Child& child) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::string how;
    if (child.pid > 0 && ReapChild(child.pid, how)) {
      child.pause = Now() - child.started > kSteady ? kFirstPause : std::min(child.pause * 2, kLastPause);
      child.restart_at = Now() + child.pause;
      child.pid = 0;
      Log(LogLevel::kWarn, "fleet", "replica ended",
          {{"address", Address(child.grpc_port)}, {"how", how}, {"restart_ms", ToMillis(child.pause)}});
    }
    if (child.pid == 0 && Now() >= child.restart_at) {
      if (const absl::Status status = Launch(child); !status.ok()) {
        Log(LogLevel::kError, "fleet", "replica not started", {{"error", status.ToString()}});
        child.restart_at = Now() + kLastPause;
      }
    }
  }

  FleetOptions options_;
  int threads_ = 1;
  std::unique_ptr<RouterProcess> router_;
  mutable absl::Mutex mutex_;
  std::vector<Child> children_ ABSL_GUARDED_BY(mutex_);
  absl::Notification stopping_;
  std::thread watcher_;
};

absl::StatusOr<std::unique_ptr<FleetProcess>> FleetProcess::Start(const FleetOptions& options) {
  auto impl = std::make_unique<Impl>();
  KVRING_RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<FleetProcess>(new FleetProcess(std::move(impl)));
}

FleetProcess::FleetProcess(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FleetProcess::~FleetProcess() = default;
std::string FleetProcess::http_address() const { return impl_->router().http_address(); }
std::string FleetProcess::grpc_address() const { return impl_->router().grpc_address(); }
std::vector<FleetReplica> FleetProcess::replicas() const { return impl_->replicas(); }

bool FleetProcess::WaitReady(Duration timeout) const {
  const auto address = net::ParseAddress(http_address());
  KVRING_CHECK(address.ok());
  net::HttpClient client(*address);
  for (const Instant end = Now() + timeout; Now() < end; absl::SleepFor(kWatchInterval)) {
    const auto response = client.Get("/readyz");
    if (response.ok() && response->status == 200) return true;
  }
  return false;
}

}  // namespace kvring::cli
