#include "common/net/http_server.h"

#include <atomic>
#include <vector>

#include "common/net/response_writer.h"
#include "common/net/server_group.h"
#include "common/status_macros.h"

namespace kvring::net {
namespace {

HttpRequest OwnedRequest(ServerConnection& connection) {
  const RequestHeadView& head = connection.head();
  HttpRequest request{.method = std::string(head.method), .target = std::string(head.target)};
  request.headers.reserve(head.fields.size());
  for (const HeaderField& field : head.fields) request.headers.emplace_back(field.name, field.value);
  request.body = std::move(connection.body());
  request.peer = connection.peer();
  request.peer_is_loopback = connection.peer_is_loopback();
  return request;
}

}  // namespace

class HttpServer::Impl final : public ServerUser {
 public:
  Impl(std::unique_ptr<ServerGroup> group, const HttpServerOptions& options, Handler handler)
      : options_(options), handler_(std::move(handler)), group_(std::move(group)) {
    group_->Start([this](size_t) -> ServerUser& { return *this; });
  }

  ServerGroup& group() { return *group_; }
  void StartDraining() { draining_.store(true, std::memory_order_relaxed); }

  // On the connection's loop.
  void OnRequest(ServerConnection& connection) override {
    if (!connection.owner) connection.owner = std::make_unique<ServerExchange>(connection);
    auto& exchange = static_cast<ServerExchange&>(*connection.owner);
    const ResponseWriter::Impl::Shape shape{.head_only = connection.head().method == "HEAD",
                                            .chunkable = connection.head().minor_version >= 1,
                                            .keep_alive = connection.keep_alive()};
    auto writer = std::make_shared<ResponseWriter::Impl>(exchange, connection.loop(), options_, shape);
    exchange.Begin(writer);
    handler_(OwnedRequest(connection), ResponseWriter(std::move(writer)));
  }

  bool keep_alive() const override { return !draining_.load(std::memory_order_relaxed); }

 private:
  const HttpServerOptions options_;
  const Handler handler_;
  std::atomic<bool> draining_{false};
  std::unique_ptr<ServerGroup> group_;  // last: its threads use the rest
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options,
                                                              Handler handler) {
  KVRING_ASSIGN_OR_RETURN(std::unique_ptr<ServerGroup> group,
                          ServerGroup::Bind(options, /*share_port=*/false));
  return std::unique_ptr<HttpServer>(
      new HttpServer(std::make_unique<Impl>(std::move(group), options, std::move(handler))));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() { Stop(Duration(0)); }

uint16_t HttpServer::port() const { return impl_->group().address().port; }
std::string HttpServer::address() const { return impl_->group().address().ToString(); }
size_t HttpServer::connections() const { return impl_->group().connections(); }

void HttpServer::Stop(Duration deadline) {
  impl_->StartDraining();
  impl_->group().Drain(deadline);
  impl_->group().Stop();
}

}  // namespace kvring::net
