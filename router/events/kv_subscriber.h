// KvSubscriber: listens to engines that publish their cache events over ZeroMQ (vLLM, SGLang) and tells them
// to the core, in order. One thread for all. A message is [topic, 8-byte sequence, payload]; what was missed
// is asked for at the replay endpoint ([empty, 8-byte first sequence] -> [empty, sequence, payload]…, ended
// by sequence -1), where there is one; what nobody can repeat is given up, and the core goes on with what is
// told from then on. A sequence that starts again at 0 is another life of the engine. The core shows gaps and
// says what it believes meanwhile (EventsView). Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "router/router.h"

namespace kvring::router {

struct KvSource {
  std::string url;       // of the member whose cache it is
  std::string endpoint;  // "tcp://host:5557", where events are published
  std::string replay;    // "tcp://host:5558"; empty: what was missed is lost
  std::string topic;     // prefix of the topics that are listened to; empty: all
  friend bool operator==(const KvSource&, const KvSource&) = default;
};

class KvSubscriber {
 public:
  explicit KvSubscriber(RouterAccess access);
  ~KvSubscriber();

  /// Listens to these from now on. Sources that stay keep their place in the sequence.
  void SetSources(const std::vector<KvSource>& sources);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether ZeroMQ can connect to it: "tcp://host:port". Errors say what is wrong.
absl::Status CheckKvEndpoint(const std::string& endpoint);

}  // namespace kvring::router
