// Internal to router/events: the order of one engine's events, without sockets: takes messages as they come
// from either socket, tells the core, and says what to ask for. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "router/events/kv_event_translator.h"
#include "router/router.h"

namespace kvring::router {

class KvFeed {
 public:
  KvFeed(RouterAccess access, std::string url) : access_(std::move(access)), url_(std::move(url)) {}

  /// A message of the publisher. A value: the first sequence number to ask a replay for; what comes until the
  /// replay ends is left to it.
  std::optional<uint64_t> OnPublished(uint64_t sequence, std::string_view payload);
  void OnReplayed(uint64_t sequence, std::string_view payload);
  void OnReplayEnd();
  /// Nobody can repeat what is missing.
  void GiveUp();
  bool replaying() const { return replay_from_.has_value(); }
  /// Messages that could not be read; each is missing from then on.
  uint64_t unreadable() const { return unreadable_; }

 private:
  EventsTaken Tell(uint64_t sequence, std::string_view payload, BatchStart start);

  const RouterAccess access_;
  const std::string url_;
  KvEventTranslator translator_;
  std::optional<uint64_t> last_;         // of the publisher
  std::optional<uint64_t> replay_from_;  // what was asked for, until the first answer
  bool first_replayed_ = false;
  bool given_up_ = false;  // the next message begins anew
  uint64_t unreadable_ = 0;
};

}  // namespace kvring::router
