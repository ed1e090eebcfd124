// CacheBelief: what the replicas' caches are believed to hold, fed by the events of requests: the residency
// index, bytes per token per model, and the rules that turn both into a prediction of cached tokens.
//   dispatch     the prompt counts as held at once, so that the next one with its prefix follows it
//   admission    the engine's block ends make the prompt's last blocks exact
//   completion   the generated text is held too
// Predictions are exact where block ends were reported or token ids are known; elsewhere estimates in whole
// engine blocks (16 tokens where the size is not told). Pure; not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "router/fleet/engine_blocks.h"
#include "router/fleet/outcome.h"
#include "router/fleet/replica.h"
#include "router/fleet/residency_index.h"
#include "router/fleet/token_estimator.h"

namespace kvring::router {

class CacheBelief {
 public:
  /// A fifth of the bound is for what replicas tell by cache events.
  explicit CacheBelief(int64_t max_bytes)
      : index_(max_bytes / 5 * 4), told_(static_cast<size_t>(max_bytes / 5 / kBytesPerToldBlock)) {}

  /// `tokens` is the replica's KV capacity, 0 if unknown; re-applied with each new ratio of bytes to tokens.
  void SetCapacity(const Replica& replica, const std::string& model, int64_t tokens);
  void Forget(const Replica& replica);
  EventsTaken OnCacheEvents(const Replica& replica, const CacheEventBatch& batch);
  EventsView Events(const Replica& replica) const { return told_.View(replica.slot); }

  double BytesPerToken(const PromptKey& prompt, const std::string& model) const;
  /// At least 1; an estimate for byte prompts.
  int64_t PromptTokens(const PromptKey& prompt, const std::string& model) const;
  /// For token prompts: tokens that the replica itself said it holds; 0 otherwise. Valid for the prompt of
  /// the last Ask; each replica is asked in blocks of its own size.
  int64_t ToldTokens(const Replica& replica);
  void Ask(const PromptKey& prompt);
  struct Prediction {
    int64_t cached_tokens = 0;
    bool exact = false;
  };
  Prediction Predict(const ResidencyPath& path, const PromptKey& prompt, const std::string& model,
                     const Replica& replica);

  /// The number of the index's insert; 0: none was made.
  uint32_t OnDispatch(const PromptKey& prompt, const Replica& replica);
  void OnAdmitted(const PromptKey& prompt, const Replica& replica, const AdmittedReport& report);
  void OnUsage(const PromptKey& prompt, const std::string& model, const Replica& replica,
               const UsageReport& usage);

  int64_t IndexedTokens(const Replica& replica, const std::string& model) const;
  ResidencyIndex& index() { return index_; }

 private:
  static constexpr int64_t kBytesPerToldBlock = 20;

  ResidencyIndex index_;
  EngineBlocks told_;
  /// Chains of the prompt under way, one per block size that was asked for; few, engines agree mostly.
  struct AskedChain {
    int32_t block_tokens;
    std::vector<BlockHash> chain;
  };
  const std::vector<BlockHash>& ChainOf(int32_t block_tokens);

  const PromptKey* asked_ = nullptr;  // null for byte prompts
  std::vector<AskedChain> chains_;
  TokenEstimator tokens_;
  std::vector<uint32_t> ends_;
};

}  // namespace kvring::router
