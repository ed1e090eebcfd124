#include "router/gateway/prober.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/runtime/clock.h"
#include "common/runtime/entropy.h"
#include "common/runtime/log.h"
#include "router/gateway/engine_metrics.h"

namespace kvring::router {
namespace {

constexpr std::array<std::string_view, 3> kHealthPaths = {"/health", "/healthz", "/v1/models"};
constexpr size_t kMaxBody = 1 << 20;
constexpr Duration kWarnInterval = std::chrono::seconds(1);

bool IsMissingRoute(int status) { return status == 404 || status == 405 || status == 501; }

}  // namespace

std::vector<std::string> ParseModelIds(std::string_view json) {
  boost::system::error_code error;
  const boost::json::value value = boost::json::parse({json.data(), json.size()}, error);
  std::vector<std::string> ids;
  const boost::json::object* object = error ? nullptr : value.if_object();
  const boost::json::value* data = object ? object->if_contains("data") : nullptr;
  if (data == nullptr || !data->is_array()) return ids;
  for (const boost::json::value& entry : data->get_array()) {
    const boost::json::object* model = entry.if_object();
    const boost::json::value* id = model ? model->if_contains("id") : nullptr;
    if (id != nullptr && id->is_string()) ids.emplace_back(id->get_string().data(), id->get_string().size());
  }
  return ids;
}

// The probes of one replica, one request at a time.
class Prober::Probe final : public AnswerSink {
 public:
  Probe(Prober& prober, std::shared_ptr<Endpoint> endpoint)
      : prober_(prober), endpoint_(std::move(endpoint)), epoch_{RandomSeed()} {}
  ~Probe() {
    if (attempt_ != nullptr) attempt_->Cancel();
  }

  bool gone() const { return endpoint_->removed.load(std::memory_order_relaxed); }
  void OnTick(Instant now) {
    if (attempt_ != nullptr && now >= deadline_) {
      std::exchange(attempt_, nullptr)->Cancel();
      purpose_ == Purpose::kMetrics ? TellLoadUnknown("no answer in time") : Finish(false);
    }
    if (attempt_ == nullptr && now >= due_) Begin(now);
  }

 private:
  enum class Purpose { kHealth, kModels, kMetrics };

  void Begin(Instant now) {
    due_ = now + prober_.options_.interval;
    deadline_ = now + prober_.options_.timeout;
    Ask(Purpose::kHealth);
  }

  void Ask(Purpose purpose) {
    purpose_ = purpose;
    body_.clear();
    const std::string_view path = purpose == Purpose::kModels    ? "/v1/models"
                                  : purpose == Purpose::kMetrics ? "/metrics"
                                                                 : kHealthPaths[path_];
    head_ = absl::StrCat("GET ", endpoint_->url.path, Absl(path), " HTTP/1.1\r\nHost: ", endpoint_->authority,
                         "\r\nUser-Agent: kvring\r\n");
    if (!endpoint_->api_key.empty())
      absl::StrAppend(&head_, "Authorization: Bearer ", endpoint_->api_key, "\r\n");
    head_.append("\r\n");
    attempt_ = prober_.upstream_.Start({.endpoint = endpoint_, .head = head_, .probe = true}, *this);
  }

  void OnAdmitted(const AdmittedReport&) override {}
  void OnHead(const AnswerHead& head) override { status_ = head.status; }
  void OnBody(const AnswerBytes& bytes) override {
    for (const std::string_view piece : bytes.data) {
      if (body_.size() + piece.size() <= kMaxBody) body_.append(piece);
    }
  }

  void OnEnd(const std::optional<UsageReport>&) override {
    attempt_ = nullptr;
    const bool good = status_ >= 200 && status_ < 300;
    if (purpose_ == Purpose::kModels) return LearnModels(good);
    if (purpose_ == Purpose::kMetrics) return LearnMetrics(good);
    if (IsMissingRoute(status_) && path_ + 1 < kHealthPaths.size()) {
      ++path_;
      return Ask(Purpose::kHealth);
    }
    if (!good) path_ = 0;
    if (good && !models_known_) return Ask(Purpose::kModels);
    Finish(good);
  }

  void OnFailed(const UpstreamFailure& failure) override {
    attempt_ = nullptr;
    if (purpose_ == Purpose::kMetrics) return TellLoadUnknown(failure.what);
    was_refused_ = was_refused_ || failure.what == "connection refused";
    Finish(false);
  }

  // A server without the route serves what it was configured for.
  void LearnModels(bool good) {
    if (good) models_ = ParseModelIds(body_);
    models_known_ = true;
    TellFacts();
    Finish(true);
  }

  void TellFacts() {
    prober_.guard_.With([&](Router& router) {
      router.OnReplicaFacts(endpoint_->replica,
                            {.epoch = epoch_,
                             .models = models_,
                             .kv_tokens = metrics_.kv_tokens,
                             .kv_source = CapacitySource::kMetrics,
                             .block_size = metrics_.block_size},
                            Now());
    });
  }

  // A start time that moves is a new process, though no connection was ever refused.
  void LearnMetrics(bool good) {
    if (!good) return TellLoadUnknown(absl::StrCat("/metrics answers ", status_));
    const EngineMetrics before = std::exchange(metrics_, ParseEngineMetrics(body_));
    const bool restarted =
        before.started_at && metrics_.started_at && before.started_at != metrics_.started_at;
    if (restarted) epoch_ = {RandomSeed()};
    if (restarted || before.kv_tokens != metrics_.kv_tokens || before.block_size != metrics_.block_size)
      TellFacts();
    if (!metrics_.running) return TellLoadUnknown("/metrics tells no requests running");
    TellLoad(*metrics_.running + metrics_.waiting.value_or(0));
  }

  // A page is a second old when the next one comes, our own counts are exact at any time: only what others
  // sent there is taken from it, smoothed, since the two counts are not of one moment.
  void TellLoad(int64_t requests) {
    prober_.guard_.With([&](Router& router) {
      const auto view = router.FindReplica(endpoint_->name);
      const int64_t own = view ? view->in_flight : 0;
      others_ = (others_ + static_cast<double>(std::clamp<int64_t>(requests - own, 0, 1 << 30))) / 2;
      router.OnLoadReport(endpoint_->replica, {.running = static_cast<int32_t>(others_)}, Now());
    });
  }

  void TellLoadUnknown(std::string_view why) {
    prober_.guard_.With([&](Router& router) { router.OnLoadUnknown(endpoint_->replica, why); });
  }

  // A server that refused connections and is back is a new process, with an empty cache.
  void Finish(bool good) {
    if (good && was_refused_) {
      was_refused_ = false;
      epoch_ = {RandomSeed()};
      models_known_ = false;
      return Ask(Purpose::kModels);
    }
    const bool down = prober_.guard_.With([&](Router& router) {
      router.OnProbe(endpoint_->replica, good, Now());
      const auto view = router.FindReplica(endpoint_->name);
      return view && view->state == ReplicaState::kDown;
    });
    if (down != endpoint_->down.exchange(down)) {
      Log(LogLevel::kWarn, "gateway", down ? "replica down" : "replica up",
          {{"replica", endpoint_->name}, {"url", endpoint_->authority}});
    }
    if (good) Ask(Purpose::kMetrics);
  }

  Prober& prober_;
  const std::shared_ptr<Endpoint> endpoint_;  // shared with the directory
  Epoch epoch_;
  Attempt* attempt_ = nullptr;
  Purpose purpose_ = Purpose::kHealth;
  size_t path_ = 0;
  int status_ = 0;
  bool was_refused_ = false;
  bool models_known_ = false;
  std::vector<std::string> models_;
  EngineMetrics metrics_;
  double others_ = 0;  // requests on the replica that are not ours
  std::string head_;
  std::string body_;
  Instant due_{};
  Instant deadline_{};
};

Prober::Prober(RouterGuard& guard, EndpointDirectory& directory, const ProbeOptions& options)
    : guard_(guard),
      directory_(directory),
      options_(options),
      upstream_(loop_, {.connect = options.timeout, .first_byte = options.timeout, .idle = options.timeout},
                counters_) {}

Prober::~Prober() { Stop(); }

void Prober::Start() {
  loop_.Watch(*this);
  loop_.Start();
  loop_.Post([this] { FollowMembers(Now()); });
}

void Prober::Stop() {
  loop_.Run([this] {
    Ticked::unlink();
    probes_.clear();
    upstream_.Shutdown();
  });
  loop_.Stop();
  loop_.Join();
}

void Prober::OnTick(Instant now) {
  guard_.With([&](Router& router) { router.Tick(now); });
  if (now >= follow_at_) FollowMembers(now);
  if (now >= warn_at_) LogNewWarnings(now);
  for (auto& [id, probe] : probes_) probe->OnTick(now);
}

// One line when a warning begins, not one per request. Numbers in it may move: the text up to the first digit
// behind a space tells warnings apart.
void Prober::LogNewWarnings(Instant now) {
  warn_at_ = now + kWarnInterval;
  std::set<std::string> standing;
  for (const std::string& warning : guard_.With([](Router& router) { return router.Warnings(); })) {
    const size_t number = warning.find_first_of("0123456789", warning.find(' '));
    const std::string kind = warning.substr(0, number);
    if (!warned_.contains(kind) && !standing.contains(kind))
      Log(LogLevel::kWarn, "router", "degraded", {{"warning", warning}});
    standing.insert(kind);
  }
  warned_ = std::move(standing);
}

void Prober::FollowMembers(Instant now) {
  follow_at_ = now + kFollowInterval;
  for (const std::shared_ptr<Endpoint>& endpoint : directory_.Refresh()) {
    if (endpoint->url.scheme != "http" || probes_.contains(endpoint->replica)) continue;
    auto& probe = probes_[endpoint->replica] = std::make_unique<Probe>(*this, endpoint);
    probe->OnTick(now);
  }
  std::erase_if(probes_, [](const auto& entry) { return entry.second->gone(); });
}

}  // namespace kvring::router
