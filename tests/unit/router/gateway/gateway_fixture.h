// A gateway on a free port before scripted upstreams, for tests of wire behaviour.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/absl_view.h"
#include "common/metrics.h"
#include "common/runtime/clock.h"
#include "router/gateway/gateway.h"
#include "tests/unit/router/gateway/scripted_upstream.h"

namespace kvring::router {

class GatewayFixture {
 public:
  explicit GatewayFixture(GatewayOptions options = {}, std::string policy = "round-robin",
                          const AdmissionRules& admission = {})
      : guard_(Router::Create({.policy = policy, .seed = 1, .admission = admission})),
        options_(std::move(options)) {}
  ~GatewayFixture() {
    if (gateway_) gateway_->Stop(Duration(0));
  }

  /// Before the first request. The replica is up at once.
  ReplicaId Add(const std::string& url) {
    return guard_.With([&](Router& router) {
      const ReplicaId id = router.AddReplica({.url = url, .models = {"m"}}, Now());
      for (int i = 0; i < 3; ++i) router.OnProbe(id, true, Now());
      return id;
    });
  }
  void Start(AdminHandler admin = {}) {
    auto gateway = Gateway::Start(options_, guard_, metrics_, {}, std::move(admin));
    ASSERT_TRUE(gateway.ok()) << gateway.status();
    gateway_ = std::move(gateway).value();
  }

  uint16_t port() const { return gateway_->port(); }
  test::RawSocket Connect() const { return test::RawSocket::Connect(port()); }
  RouterGuard& guard() { return guard_; }
  Gateway& gateway() { return *gateway_; }
  MetricRegistry& metrics() { return metrics_; }
  uint64_t Count(std::string_view name) { return metrics_.GetCounter(name, "").value(); }
  uint64_t Outcomes(OutcomeClass outcome) {
    return metrics_.GetCounter("kvring_requests_total", "", {{"outcome", std::string(OutcomeName(outcome))}})
        .value();
  }
  Totals totals() {
    return guard_.With([](Router& router) { return router.totals(); });
  }
  std::vector<ReplicaView> replicas() {
    return guard_.With([](Router& router) { return router.Replicas(Now()); });
  }
  QueueStats queue() {
    return guard_.With([](Router& router) { return router.queue_stats(); });
  }
  int InFlight() {
    int sum = 0;
    for (const ReplicaView& view : replicas()) sum += view.in_flight;
    return sum;
  }

 private:
  MetricRegistry metrics_;
  RouterGuard guard_;
  GatewayOptions options_;
  std::unique_ptr<Gateway> gateway_;
};

inline std::string PostBody(std::string_view body, std::string_view lines = "",
                            std::string_view path = "/v1/chat/completions") {
  return absl::StrCat("POST ", Absl(path),
                      " HTTP/1.1\r\nHost: api.example\r\nContent-Type: application/json\r\n", Absl(lines),
                      "Content-Length: ", body.size(), "\r\n\r\n", Absl(body));
}
inline std::string ChatBody(bool stream, std::string_view text = "hi") {
  return absl::StrCat("{\"model\":\"m\",\"stream\":", stream ? "true" : "false",
                      ",\"messages\":[{\"role\":\"user\",\"content\":\"", Absl(text), "\"}]}");
}
inline std::string PostChat(bool stream, std::string_view lines = "") {
  return PostBody(ChatBody(stream), lines);
}

/// The body of a chunked answer; "?" behind it where the last chunk is missing.
inline std::string Dechunk(std::string_view wire) {
  std::string body;
  while (true) {
    const size_t line = wire.find("\r\n");
    if (line == std::string_view::npos) return body + "?";
    const size_t size = std::stoul(std::string(wire.substr(0, line)), nullptr, 16);
    if (size == 0) return body;
    if (wire.size() < line + 2 + size + 2) return body.append(wire.substr(line + 2, size)) + "?";
    body.append(wire.substr(line + 2, size));
    wire.remove_prefix(line + 2 + size + 2);
  }
}

struct Answer {
  std::string head;
  std::string body;  // as Dechunk gives it
  int status() const { return std::stoi(head.substr(9, 3)); }
  bool Has(std::string_view line) const {
    return head.find(absl::StrCat("\r\n", Absl(line), "\r\n")) != std::string::npos;
  }
  bool Names(std::string_view field) const {
    return head.find(absl::StrCat("\r\n", Absl(field), ":")) != std::string::npos;
  }
};

/// Reads one answer by its framing.
inline Answer ReadAnswer(test::RawSocket& client) {
  Answer answer{.head = client.ReadUntil("\r\n\r\n")};
  const size_t length = answer.head.find("Content-Length: ");
  if (length != std::string::npos) {
    answer.body = client.Read(std::stoul(answer.head.substr(length + 16)));
  } else if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos) {
    answer.body = Dechunk(client.ReadUntil("\r\n0\r\n\r\n"));
  } else {
    answer.body = client.ReadAll();
  }
  return answer;
}

}  // namespace kvring::router
