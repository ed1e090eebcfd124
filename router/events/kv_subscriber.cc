#include "router/events/kv_subscriber.h"

#include <zmq.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/net/address.h"
#include "common/runtime/clock.h"
#include "common/runtime/log.h"
#include "router/events/kv_feed.h"

namespace kvring::router {
namespace {

constexpr int64_t kMaxMessageBytes = int64_t{64} << 20;
constexpr int kWaiting = 100'000;  // messages, as the publishers' own bound
constexpr long kPollMs = 100;
constexpr Duration kReplayTimeout = std::chrono::seconds(5);
constexpr uint64_t kReplayEnd = ~uint64_t{0};

struct CloseSocket {
  void operator()(void* socket) const { zmq_close(socket); }
};
using Socket = std::unique_ptr<void, CloseSocket>;

struct EndContext {
  void operator()(void* context) const { zmq_ctx_term(context); }
};

// One message of several frames; empty: none is there.
std::vector<std::string> Receive(void* socket) {
  std::vector<std::string> frames;
  int more = 1;
  while (more != 0) {
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, socket, ZMQ_DONTWAIT) < 0) {
      zmq_msg_close(&message);
      return {};
    }
    frames.emplace_back(static_cast<const char*>(zmq_msg_data(&message)), zmq_msg_size(&message));
    more = zmq_msg_more(&message);
    zmq_msg_close(&message);
  }
  return frames;
}

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (const char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

// The last two frames are sequence and payload; before them stands the topic, or the empty frame of a reply.
bool IsMessage(const std::vector<std::string>& frames) {
  return frames.size() >= 2 && frames.end()[-2].size() == 8;
}

class Source {
 public:
  Source(void* context, const RouterAccess& access, const KvSource& spec)
      : spec_(spec), feed_(access, spec.url), events_(Open(context, ZMQ_SUB, spec.endpoint)) {
    zmq_setsockopt(events_.get(), ZMQ_SUBSCRIBE, spec.topic.data(), spec.topic.size());
    if (!spec.replay.empty()) replay_ = Open(context, ZMQ_DEALER, spec.replay);
  }

  const KvSource& spec() const { return spec_; }
  void AddTo(std::vector<zmq_pollitem_t>& items) const {
    items.push_back({events_.get(), 0, ZMQ_POLLIN, 0});
    if (replay_) items.push_back({replay_.get(), 0, ZMQ_POLLIN, 0});
  }

  void Read(Instant now) {
    while (true) {
      const std::vector<std::string> frames = Receive(events_.get());
      if (frames.empty()) break;
      if (!IsMessage(frames)) continue;
      const auto wanted = feed_.OnPublished(BigEndian(frames.end()[-2]), frames.back());
      if (wanted) Ask(*wanted, now);
    }
    if (replay_) ReadReplay();
    if (feed_.replaying() && now >= give_up_at_) feed_.GiveUp();
  }

 private:
  static Socket Open(void* context, int kind, const std::string& endpoint) {
    Socket socket(zmq_socket(context, kind));
    const int linger = 0;
    zmq_setsockopt(socket.get(), ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket.get(), ZMQ_MAXMSGSIZE, &kMaxMessageBytes, sizeof kMaxMessageBytes);
    zmq_setsockopt(socket.get(), ZMQ_RCVHWM, &kWaiting, sizeof kWaiting);
    zmq_connect(socket.get(), endpoint.c_str());  // was checked; connects again by itself
    return socket;
  }

  void Ask(uint64_t from, Instant now) {
    Log(LogLevel::kWarn, "events", "cache events missing",
        {{"replica", spec_.url}, {"from", from}, {"replay", replay_ ? spec_.replay : "none"}});
    if (!replay_) return feed_.GiveUp();
    give_up_at_ = now + kReplayTimeout;
    std::array<char, 8> sequence;
    for (size_t i = 0; i < 8; ++i) sequence[i] = static_cast<char>(from >> (56 - 8 * i));
    zmq_send(replay_.get(), "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(replay_.get(), sequence.data(), sequence.size(), ZMQ_DONTWAIT);
  }

  void ReadReplay() {
    while (true) {
      const std::vector<std::string> frames = Receive(replay_.get());
      if (frames.empty()) return;
      if (!IsMessage(frames)) continue;
      const uint64_t sequence = BigEndian(frames.end()[-2]);
      sequence == kReplayEnd ? feed_.OnReplayEnd() : feed_.OnReplayed(sequence, frames.back());
    }
  }

  const KvSource spec_;
  KvFeed feed_;
  Socket events_;
  Socket replay_;
  Instant give_up_at_{};
};

}  // namespace

class KvSubscriber::Impl {
 public:
  explicit Impl(RouterAccess access) : access_(std::move(access)), context_(zmq_ctx_new()) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Impl() {
    stopping_ = true;
    thread_.join();
  }

  void SetSources(const std::vector<KvSource>& sources) {
    absl::MutexLock lock(&mutex_);
    wanted_ = sources;
  }

 private:
  // Sockets belong to this thread.
  void Run() {
    std::vector<std::unique_ptr<Source>> sources;
    while (!stopping_) {
      Follow(sources);
      std::vector<zmq_pollitem_t> items;
      for (const auto& source : sources) source->AddTo(items);
      zmq_poll(items.data(), static_cast<int>(items.size()), kPollMs);
      for (const auto& source : sources) source->Read(Now());
    }
  }

  void Follow(std::vector<std::unique_ptr<Source>>& sources) {
    absl::MutexLock lock(&mutex_);
    std::erase_if(sources, [&](const auto& source) {
      return std::find(wanted_.begin(), wanted_.end(), source->spec()) == wanted_.end();
    });
    for (const KvSource& spec : wanted_) {
      const auto same = [&](const auto& source) { return source->spec() == spec; };
      if (std::none_of(sources.begin(), sources.end(), same))
        sources.push_back(std::make_unique<Source>(context_.get(), access_, spec));
    }
  }

  const RouterAccess access_;
  const std::unique_ptr<void, EndContext> context_;
  absl::Mutex mutex_;
  std::vector<KvSource> wanted_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

KvSubscriber::KvSubscriber(RouterAccess access) : impl_(std::make_unique<Impl>(std::move(access))) {}
KvSubscriber::~KvSubscriber() = default;
void KvSubscriber::SetSources(const std::vector<KvSource>& sources) { impl_->SetSources(sources); }

absl::Status CheckKvEndpoint(const std::string& endpoint) {
  constexpr std::string_view kTcp = "tcp://";
  if (!endpoint.starts_with(kTcp))
    return absl::InvalidArgumentError(absl::StrCat("'", endpoint, "' is not tcp://host:port"));
  const auto address = net::ParseAddress(endpoint.substr(kTcp.size()));
  if (!address.ok()) return absl::InvalidArgumentError(std::string(address.status().message()));
  return absl::OkStatus();
}

}  // namespace kvring::router
