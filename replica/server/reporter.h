// Reporter: tells routers that this replica is there: registers at each, keeps the lease, and takes leave at
// the end. A router that is away is tried again with back-off; one thread per router, all ended by the
// destructor.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "common/ids.h"

namespace kvring::replica {

class Reporter {
 public:
  struct Options {
    std::vector<std::string> routers;  // host:port of their gRPC listeners
    std::string address;               // host:port under which routers reach this replica's gRPC
    Epoch epoch;
    std::vector<std::string> models;
    std::string api_key;  // that the routers want; empty: none
  };

  explicit Reporter(Options options);
  /// Deregisters everywhere (at most a second each).
  ~Reporter();

 private:
  void Run(const std::string& router);

  const Options options_;
  absl::Notification stopping_;
  std::vector<std::thread> threads_;
};

}  // namespace kvring::replica
