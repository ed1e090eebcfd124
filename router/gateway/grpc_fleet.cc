#include "router/gateway/grpc_fleet.h"

#include <set>
#include <utility>

#include "common/net/event_loop.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "router/gateway/grpc_upstream.h"

namespace kvring::router {
namespace {

constexpr Duration kFollowInterval = std::chrono::milliseconds(300);

ReplicaFacts FactsOf(const v1::ReplicaInfo& info) {
  return {.epoch = {info.epoch()},
          .models = {info.models().begin(), info.models().end()},
          .kv_tokens = info.kv_capacity_tokens(),
          .kv_source = CapacitySource::kRegistered,
          .block_size = info.block_size(),
          .context_length = info.context_length(),
          .draining = info.draining()};
}

LoadReport LoadOf(const v1::LoadReport& load) {
  return {.running = load.running(),
          .waiting = load.waiting(),
          .kv_used_tokens = load.kv_used_tokens(),
          .kv_cached_tokens = load.kv_cached_tokens(),
          .pending_prefill_tokens = load.pending_prefill_tokens(),
          .prefill_tokens_per_second = load.prefill_tokens_per_second(),
          .decode_step_seconds = load.decode_step_seconds()};
}

CacheEventKind KindOf(v1::CacheEvent::Kind kind) {
  if (kind == v1::CacheEvent::STORED) return CacheEventKind::kStored;
  return kind == v1::CacheEvent::REMOVED ? CacheEventKind::kRemoved : CacheEventKind::kCleared;
}

template <class Messages>
std::vector<CacheEvent> EventsOf(const Messages& messages) {
  std::vector<CacheEvent> events;
  events.reserve(static_cast<size_t>(messages.size()));
  for (const v1::CacheEvent& event : messages)
    events.push_back({KindOf(event.kind()), {event.block_hash()}, std::nullopt});
  return events;
}

}  // namespace

// ---- GrpcReplica ----

GrpcReplica::GrpcReplica(RouterGuard& guard, ReplicaId id, std::string name, ExchangeOptions options)
    : guard_(guard),
      id_(id),
      name_(std::move(name)),
      address_(options.address),
      client_(std::move(options), *this) {}

std::string GrpcReplica::model() const {
  absl::MutexLock lock(&mutex_);
  return info_.models_size() > 0 ? info_.models(0) : "";
}

int32_t GrpcReplica::block_size() const {
  absl::MutexLock lock(&mutex_);
  return info_.block_size();
}

void GrpcReplica::OnInfo(const v1::ReplicaInfo& info) {
  bool was_up = false;
  {
    absl::MutexLock lock(&mutex_);
    info_ = info;
    was_up = std::exchange(up_, true);
  }
  guard_.With([&](Router& router) { router.OnReplicaFacts(id_, FactsOf(info), Now()); });
  if (!was_up)
    Log(LogLevel::kInfo, "gateway", "replica connected",
        {{"replica", name_}, {"address", address_}, {"version", info.version()}});
}

void GrpcReplica::OnLoad(const v1::LoadReport& load) {
  guard_.With([&](Router& router) { router.OnLoadReport(id_, LoadOf(load), Now()); });
}

// The last number before the snapshot stands for all events that led to it.
void GrpcReplica::OnCacheSnapshot(const v1::CacheSnapshot& message) {
  const std::vector<CacheEvent> stored = EventsOf(message.stored());
  guard_.With([&](Router& router) {
    router.OnCacheEvents(id_,
                         {.epoch = {message.epoch()},
                          .first_sequence = message.next_sequence() - 1,
                          .events = stored,
                          .start = BatchStart::kSnapshot,
                          .numbers = 1},
                         Now());
  });
}

void GrpcReplica::OnCacheEvents(const v1::CacheEvents& message) {
  const std::vector<CacheEvent> events = EventsOf(message.events());
  CacheEventBatch batch{
      .epoch = {message.epoch()}, .first_sequence = message.first_sequence(), .events = events};
  // What is missing was told while no stream was open, and is not told again.
  guard_.With([&](Router& router) {
    if (router.OnCacheEvents(id_, batch, Now()).fate != BatchFate::kGap) return;
    batch.start = BatchStart::kResumes;
    router.OnCacheEvents(id_, batch, Now());
  });
}

void GrpcReplica::OnDown(std::string_view why) {
  TellProbe(false);
  bool was_up = false;
  {
    absl::MutexLock lock(&mutex_);
    was_up = std::exchange(up_, false);
  }
  if (was_up)
    Log(LogLevel::kWarn, "gateway", "replica connection lost",
        {{"replica", name_}, {"address", address_}, {"why", why}});
}

// A frozen process keeps its connection; what has not begun there goes elsewhere once the core takes it for
// down.
void GrpcReplica::OnProbe(bool ok) {
  if (TellProbe(ok) && !ok) client_.BreakWaiting("probes of the replica fail");
}

// True: the core takes the replica for down.
bool GrpcReplica::TellProbe(bool ok) {
  return guard_.With([&](Router& router) {
    router.OnProbe(id_, ok, Now());
    const auto view = router.FindReplica(name_);
    return view && view->state == ReplicaState::kDown;
  });
}

// ---- GrpcFleet ----

class GrpcFleet::Follower final : private net::Ticked {
 public:
  explicit Follower(GrpcFleet& fleet) : fleet_(fleet) {
    loop_.Watch(*this);
    loop_.Start();
  }
  ~Follower() {
    loop_.Stop();
    loop_.Join();
    Ticked::unlink();
  }

 private:
  void OnTick(Instant now) override {
    fleet_.ExpireLate(now);
    if (now < next_) return;
    next_ = now + kFollowInterval;
    fleet_.Refresh();
    fleet_.EndRetired();
  }

  GrpcFleet& fleet_;
  net::EventLoop loop_;
  Instant next_{};
};

GrpcFleet::GrpcFleet(RouterGuard& guard, ExchangeOptions options)
    : guard_(guard), options_(std::move(options)) {
  Refresh();
  follower_ = std::make_unique<Follower>(*this);
}

GrpcFleet::~GrpcFleet() = default;

void GrpcFleet::SetTls(std::map<std::string, GrpcClientTls> by_url) {
  absl::MutexLock lock(&mutex_);
  tls_ = std::move(by_url);
}

std::shared_ptr<GrpcReplica> GrpcFleet::Find(ReplicaId replica) {
  {
    absl::MutexLock lock(&mutex_);
    if (const auto found = replicas_.find(replica); found != replicas_.end()) return found->second;
  }
  Refresh();
  absl::MutexLock lock(&mutex_);
  const auto found = replicas_.find(replica);
  return found == replicas_.end() ? nullptr : found->second;
}

void GrpcFleet::Refresh() {
  const std::vector<ReplicaView> views = guard_.With([](Router& router) { return router.Replicas(Now()); });
  absl::MutexLock lock(&mutex_);
  Follow(views);
}

void GrpcFleet::Follow(const std::vector<ReplicaView>& views) {
  std::set<ReplicaId> members;
  for (const ReplicaView& view : views) {
    const auto url = net::ParseUrl(view.url);
    if (!url.ok() || url->scheme != "grpc") continue;
    members.insert(view.id);
    if (replicas_.contains(view.id)) continue;
    ExchangeOptions options = options_;
    options.address = url->address.ToString();
    if (const auto tls = tls_.find(view.url); tls != tls_.end()) options.tls = tls->second;
    replicas_.emplace(view.id, std::make_shared<GrpcReplica>(guard_, view.id, view.name, std::move(options)));
  }
  for (auto it = replicas_.begin(); it != replicas_.end();) {
    if (members.contains(it->first)) {
      ++it;
      continue;
    }
    retired_.push_back(std::move(it->second));
    it = replicas_.erase(it);
  }
}

// With no lock held: who hears of it may look for another replica at once.
void GrpcFleet::ExpireLate(Instant now) {
  std::vector<std::shared_ptr<GrpcReplica>> all;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [id, replica] : replicas_) all.push_back(replica);
    all.insert(all.end(), retired_.begin(), retired_.end());
  }
  for (const auto& replica : all) replica->client().ExpireLate(now);
}

void GrpcFleet::EndRetired() {
  std::vector<std::shared_ptr<GrpcReplica>> ended;  // outlives the lock: its end waits for calls under way
  absl::MutexLock lock(&mutex_);
  std::erase_if(retired_, [&](std::shared_ptr<GrpcReplica>& replica) {
    if (replica.use_count() > 1) return false;
    ended.push_back(std::move(replica));
    return true;
  });
}

UpstreamFactory GrpcFleet::Upstreams() {
  return [this](const UpstreamTimeouts& timeouts, LoopPoster poster) {
    return MakeGrpcUpstream(*this, timeouts, std::move(poster));
  };
}

}  // namespace kvring::router
