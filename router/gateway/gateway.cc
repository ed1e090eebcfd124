#include "router/gateway/gateway.h"

#include "common/runtime/entropy.h"
#include "common/status_macros.h"
#include "router/gateway/gateway_loop.h"
#include "router/gateway/prober.h"

namespace kvring::router {

class Gateway::Impl {
 public:
  Impl(std::unique_ptr<net::ServerGroup> group, const GatewayOptions& options, RouterGuard& guard,
       MetricRegistry& metrics)
      : shared_(options, guard, metrics),
        group_(std::move(group)),
        prober_(guard, shared_.directory, options.probes) {
    shared_.client_connections = [this] { return group_->connections(); };
  }
  ~Impl() { Stop(Duration(0)); }

  GatewayShared& shared() { return shared_; }
  net::ServerGroup& group() { return *group_; }

  void Start() {
    for (size_t i = 0; i < group_->size(); ++i)
      loops_.push_back(std::make_unique<GatewayLoop>(shared_, group_->at(i).loop()));
    prober_.Start();
    group_->Start([this](size_t i) -> net::ServerUser& { return *loops_[i]; });
    running_ = true;
  }

  void Stop(Duration deadline) {
    if (!running_) return;
    running_ = false;
    shared_.draining = true;
    group_->Drain(deadline);
    for (size_t i = 0; i < group_->size(); ++i) {
      group_->at(i).loop().Run([&] {
        group_->at(i).CutAll();
        loops_[i]->Shutdown();
      });
    }
    group_->Stop();
    prober_.Stop();
  }

 private:
  GatewayShared shared_;
  // Destroyed in this order: prober, then connections and their loops, then what requests of the loops used.
  std::vector<std::unique_ptr<GatewayLoop>> loops_;
  std::unique_ptr<net::ServerGroup> group_;
  Prober prober_;
  bool running_ = false;
};

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(const GatewayOptions& options, RouterGuard& guard,
                                                        MetricRegistry& metrics, UpstreamFactory grpc,
                                                        AdminHandler admin) {
  KVRING_ASSIGN_OR_RETURN(std::vector<SessionRule> rules, ParseSessionRules(options.session_keys));
  KVRING_ASSIGN_OR_RETURN(std::unique_ptr<net::ServerGroup> group,
                          net::ServerGroup::Bind(options.http, options.share_port));
  auto impl = std::make_unique<Impl>(std::move(group), options, guard, metrics);
  impl->shared().session_rules = std::move(rules);
  impl->shared().grpc = std::move(grpc);
  impl->shared().admin = std::move(admin);
  impl->Start();
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;
uint16_t Gateway::port() const { return impl_->group().address().port; }
std::string Gateway::address() const { return impl_->group().address().ToString(); }
void Gateway::Stop(Duration deadline) { impl_->Stop(deadline); }

}  // namespace kvring::router
