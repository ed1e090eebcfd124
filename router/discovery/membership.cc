#include "router/discovery/membership.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/net/address.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"

namespace kvring::router {
namespace {

std::string UrlOf(const std::string& address) { return absl::StrCat("grpc://", address); }

}  // namespace

absl::StatusOr<std::string> NormalBackendUrl(std::string_view text) {
  auto url = net::ParseUrl(text);
  if (!url.ok()) return url.status();
  if (url->scheme != "http" && url->scheme != "grpc") {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", url->scheme, "\": a backend is http://host:port or grpc://host:port"));
  }
  return absl::StrCat(url->scheme, "://", url->address.ToString(), url->path);
}

Membership::Membership(RouterAccess access, Duration lease) : access_(std::move(access)), leases_(lease) {
  loop_.Watch(*this);
  loop_.Start();
}

Membership::~Membership() {
  loop_.Stop();
  loop_.Join();
  Ticked::unlink();
}

absl::Status Membership::SetStatic(const std::vector<ReplicaSpec>& backends) {
  std::vector<ReplicaSpec> normal = backends;
  for (size_t i = 0; i < normal.size(); ++i) {
    auto url = NormalBackendUrl(normal[i].url);
    if (!url.ok())
      return absl::InvalidArgumentError(absl::StrCat("backends[", i, "].url: ", url.status().message()));
    normal[i].url = *std::move(url);
  }
  const Instant now = Now();
  absl::MutexLock lock(&mutex_);
  std::set<std::string> gone = std::exchange(static_, {});
  for (const ReplicaSpec& spec : normal) {
    gone.erase(spec.url);
    static_.insert(spec.url);
  }
  access_([&](Router& router) {
    for (const ReplicaSpec& spec : normal) router.AddReplica(spec, now);
    for (const std::string& url : gone) {
      if (const auto view = router.FindReplica(url)) router.RemoveReplica(view->id, now);
    }
  });
  for (const std::string& url : gone)
    Log(LogLevel::kInfo, "discovery", "replica removed", {{"url", url}, {"why", "no longer configured"}});
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Membership::Register(const std::string& address, Epoch epoch,
                                              std::vector<std::string> models) {
  const auto parsed = net::ParseAddress(address);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat("address: ", parsed.status().message()));
  if (parsed->port == 0) return absl::InvalidArgumentError("address: port 0 cannot be reached");
  if (epoch.value == 0) return absl::InvalidArgumentError("epoch: 0 is no process life");
  const std::string place = parsed->ToString();
  const Instant now = Now();
  absl::MutexLock lock(&mutex_);
  const LeaseTable::Change change = leases_.Register(place, epoch, now);
  const auto lease_ms =
      static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::milliseconds>(leases_.lease()).count());
  if (change == LeaseTable::Change::kRenewed || change == LeaseTable::Change::kStale) return lease_ms;
  access_([&](Router& router) {
    const auto known = router.FindReplica(UrlOf(place));
    const ReplicaId id = router.AddReplica({.url = UrlOf(place), .models = models}, now);
    // A new life: what was believed of the old one's cache goes. Its size and load come over
    // Inference.Exchange, which may have told of this life already.
    if (known && known->epoch != epoch) router.OnReplicaFacts(id, {.epoch = epoch, .models = models}, now);
  });
  Log(LogLevel::kInfo, "discovery",
      change == LeaseTable::Change::kAdded ? "replica registered" : "replica restarted",
      {{"address", place}});
  return lease_ms;
}

void Membership::Deregister(const std::string& address, Epoch epoch) {
  const auto parsed = net::ParseAddress(address);
  if (!parsed.ok()) return;
  absl::MutexLock lock(&mutex_);
  if (leases_.Deregister(parsed->ToString(), epoch)) Remove(parsed->ToString(), "left");
}

void Membership::ExpireLeases() {
  const Instant now = Now();
  absl::MutexLock lock(&mutex_);
  const auto failing = [this](const std::string& address) {
    bool failing = true;
    access_([&](Router& router) {
      const auto view = router.FindReplica(UrlOf(address));
      failing = !view || view->state != ReplicaState::kUp;
    });
    return failing;
  };
  for (const std::string& address : leases_.TakeExpired(now, failing))
    Remove(address, "lease ended and probes fail");
}

void Membership::Remove(const std::string& address, std::string_view why) {
  access_([&](Router& router) {
    if (const auto view = router.FindReplica(UrlOf(address))) router.RemoveReplica(view->id, Now());
  });
  Log(LogLevel::kInfo, "discovery", "replica removed", {{"address", address}, {"why", why}});
}

void Membership::OnTick(Instant) { ExpireLeases(); }

}  // namespace kvring::router
