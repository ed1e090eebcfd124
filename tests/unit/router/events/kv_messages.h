// Messages as a publisher writes them, and a router that believes them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "common/runtime/clock.h"
#include "router/router.h"

namespace kvring::router {

/// MessagePack of what the tests need: integers below 2^31, short text, arrays.
class Pack {
 public:
  Pack& Array(size_t size) { return Byte(0xdc).Byte(size >> 8).Byte(size & 0xff); }
  Pack& Integer(uint64_t value) {
    Byte(0xce);
    for (int shift = 24; shift >= 0; shift -= 8) Byte(value >> shift & 0xff);
    return *this;
  }
  Pack& Text(const std::string& text) {
    Byte(0xa0 + text.size());
    out_ += text;
    return *this;
  }
  Pack& Nil() { return Byte(0xc0); }
  std::string Take() { return std::move(out_); }

 private:
  Pack& Byte(uint64_t value) {
    out_ += static_cast<char>(value);
    return *this;
  }
  std::string out_;
};

inline std::vector<TokenId> Tokens(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}
inline std::string Stored(const std::vector<uint64_t>& hashes, std::optional<uint64_t> parent,
                          const std::vector<TokenId>& tokens, uint64_t block_tokens = 16) {
  Pack pack;
  pack.Array(2).Integer(1).Array(1).Array(5).Text("BlockStored").Array(hashes.size());
  for (const uint64_t hash : hashes) pack.Integer(hash);
  parent ? pack.Integer(*parent) : pack.Nil();
  pack.Array(tokens.size());
  for (const TokenId token : tokens) pack.Integer(static_cast<uint64_t>(token));
  return pack.Integer(block_tokens).Take();
}
inline std::string Removed(const std::vector<uint64_t>& hashes) {
  Pack pack;
  pack.Array(2).Integer(1).Array(1).Array(2).Text("BlockRemoved").Array(hashes.size());
  for (const uint64_t hash : hashes) pack.Integer(hash);
  return pack.Take();
}
inline std::string Cleared() {
  return Pack().Array(2).Integer(1).Array(1).Array(1).Text("AllBlocksCleared").Take();
}

class KvEventsTest : public ::testing::Test {
 protected:
  KvEventsTest() {
    const ReplicaId id = router_->AddReplica({.url = "http://a:1", .models = {"m"}}, Now());
    router_->OnProbe(id, true, Now());
    router_->OnReplicaFacts(id, {.epoch = Epoch{7}, .models = {"m"}}, Now());
  }
  RouterAccess Access() {
    return [this](absl::FunctionRef<void(Router&)> work) {
      absl::MutexLock lock(&mutex_);
      work(*router_);
    };
  }
  ReplicaView View() {
    absl::MutexLock lock(&mutex_);
    return *router_->FindReplica("http://a:1");
  }
  int64_t Predicted(const std::vector<TokenId>& tokens) {
    absl::MutexLock lock(&mutex_);
    const PromptKey key = MakePromptKey({"m", {}, {}}, std::span<const TokenId>(tokens));
    const RequestId id{++last_};
    const Decision decision = router_->OnRequest({.id = id, .model = "m", .prompt = &key}, Now());
    router_->OnComplete(id, {.outcome = OutcomeClass::kClientAbort}, Now());
    return decision.predicted_cached_tokens;
  }

  absl::Mutex mutex_;
  uint64_t last_ = 0;
  std::unique_ptr<Router> router_ = Router::Create({.policy = "round-robin", .seed = 1});
};

}  // namespace kvring::router
