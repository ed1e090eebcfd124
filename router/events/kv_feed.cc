#include "router/events/kv_feed.h"

#include <utility>

#include "common/runtime/clock.h"
#include "common/runtime/log.h"

namespace kvring::router {

// Before the core meets the replica its epoch is 0 and nothing is held of it: events wait for it as a gap.
EventsTaken KvFeed::Tell(uint64_t sequence, std::string_view payload, BatchStart start) {
  const auto decoded = DecodeKvEvents(payload);
  if (!decoded.ok()) {
    if (unreadable_++ == 0) {
      Log(LogLevel::kWarn, "events", "cache event unreadable",
          {{"replica", url_}, {"error", std::string(decoded.status().message())}});
    }
    return {BatchFate::kIgnored};
  }
  EventsTaken taken{BatchFate::kIgnored};
  access_([&](Router& router) {
    const auto view = router.FindReplica(url_);
    if (!view) return;
    const std::string model = view->models.empty() ? "" : view->models.front();
    const KvEventTranslator::Translated translated = translator_.Translate(*decoded, model);
    taken = router.OnCacheEvents(view->id,
                                 {.epoch = view->epoch,
                                  .first_sequence = sequence,
                                  .events = translated.events,
                                  .start = start,
                                  .numbers = 1,
                                  .block_tokens = translated.block_tokens},
                                 Now());
  });
  return taken;
}

std::optional<uint64_t> KvFeed::OnPublished(uint64_t sequence, std::string_view payload) {
  const bool restarted = last_ && sequence < *last_ && sequence == 0;
  last_ = sequence;
  if (restarted) {
    replay_from_.reset();
    given_up_ = false;
    translator_.Reset();
    Tell(sequence, payload, BatchStart::kSnapshot);
    return std::nullopt;
  }
  if (replaying()) return std::nullopt;
  const BatchStart start = std::exchange(given_up_, false) ? BatchStart::kResumes : BatchStart::kFollows;
  const EventsTaken taken = Tell(sequence, payload, start);
  if (taken.fate != BatchFate::kGap) return std::nullopt;
  replay_from_ = taken.wanted;
  first_replayed_ = false;
  return taken.wanted;
}

void KvFeed::OnReplayed(uint64_t sequence, std::string_view payload) {
  if (!replaying()) return;
  BatchStart start = BatchStart::kFollows;
  if (!std::exchange(first_replayed_, true)) {
    if (sequence > *replay_from_) start = BatchStart::kResumes;  // the rest has left the engine's buffer
    if (sequence == 0) start = BatchStart::kSnapshot;
    if (start != BatchStart::kFollows) translator_.Reset();
  }
  Tell(sequence, payload, start);
}

void KvFeed::OnReplayEnd() {
  if (!first_replayed_) return GiveUp();
  replay_from_.reset();
}

void KvFeed::GiveUp() {
  replay_from_.reset();
  given_up_ = true;
}

}  // namespace kvring::router
