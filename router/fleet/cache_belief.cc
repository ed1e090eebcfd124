#include "router/fleet/cache_belief.h"

#include <algorithm>

namespace kvring::router {
namespace {

constexpr int32_t kUsualBlockTokens = 16;  // of engines that do not tell

}  // namespace

void CacheBelief::Forget(const Replica& replica) {
  index_.Drop(replica.slot);
  told_.Forget(replica.slot);
}

// An event for an earlier life is of no use. An emptied cache empties what was predicted for it as well.
EventsTaken CacheBelief::OnCacheEvents(const Replica& replica, const CacheEventBatch& batch) {
  if (batch.epoch != replica.epoch) return {BatchFate::kIgnored};
  CacheEventBatch sized = batch;
  if (sized.block_tokens == 0) sized.block_tokens = replica.block_size;
  const EventsTaken taken = told_.Apply(replica.slot, sized);
  const auto cleared = [](const CacheEvent& event) { return event.kind == CacheEventKind::kCleared; };
  const bool emptied = std::any_of(batch.events.begin(), batch.events.end(), cleared);
  if (taken.fate == BatchFate::kApplied && emptied) index_.Drop(replica.slot);
  return taken;
}

void CacheBelief::Ask(const PromptKey& prompt) {
  chains_.clear();
  asked_ = prompt.unit == PromptUnit::kTokens && !prompt.bytes.empty() && told_.any() ? &prompt : nullptr;
}

const std::vector<BlockHash>& CacheBelief::ChainOf(int32_t block_tokens) {
  for (const AskedChain& asked : chains_) {
    if (asked.block_tokens == block_tokens) return asked.chain;
  }
  std::vector<BlockHash> chain = EngineBlocks::ChainOf(*asked_, block_tokens);
  // The engine computes at least the last prompt token anew.
  const size_t most = (asked_->bytes.size() / sizeof(TokenId) - 1) / static_cast<size_t>(block_tokens);
  if (chain.size() > most) chain.resize(most);
  return chains_.emplace_back(block_tokens, std::move(chain)).chain;
}

int64_t CacheBelief::ToldTokens(const Replica& replica) {
  const int32_t block = asked_ == nullptr ? 0 : told_.BlockTokens(replica.slot);
  return block <= 0 ? 0 : static_cast<int64_t>(told_.Depth(replica.slot, ChainOf(block))) * block;
}

void CacheBelief::SetCapacity(const Replica& replica, const std::string& model, int64_t tokens) {
  index_.SetCapacity(replica.slot,
                     static_cast<int64_t>(static_cast<double>(tokens) * tokens_.BytesPerToken(model)));
}

double CacheBelief::BytesPerToken(const PromptKey& prompt, const std::string& model) const {
  return prompt.unit == PromptUnit::kTokens ? sizeof(TokenId) : tokens_.BytesPerToken(model);
}

int64_t CacheBelief::PromptTokens(const PromptKey& prompt, const std::string& model) const {
  const auto bytes = static_cast<double>(prompt.bytes.size());
  return std::max<int64_t>(static_cast<int64_t>(bytes / BytesPerToken(prompt, model) + 0.5), 1);
}

CacheBelief::Prediction CacheBelief::Predict(const ResidencyPath& path, const PromptKey& prompt,
                                             const std::string& model, const Replica& replica) {
  const Residency held = index_.Resolve(path, prompt, replica.slot);
  const int64_t told = ToldTokens(replica);
  if (told > held.token_blocks * replica.block_size) return {told, true};
  if (replica.block_size > 0 && (held.exact || held.bytes == 0)) {
    return {held.token_blocks * replica.block_size, true};
  }
  const int64_t block = replica.block_size > 0 ? replica.block_size : kUsualBlockTokens;
  const auto tokens = static_cast<int64_t>(static_cast<double>(held.bytes) / BytesPerToken(prompt, model));
  return {std::min(tokens, PromptTokens(prompt, model) - 1) / block * block, false};
}

// Where token ids are known, so are the engine's blocks.
uint32_t CacheBelief::OnDispatch(const PromptKey& prompt, const Replica& replica) {
  if (replica.removed) return 0;
  ends_.clear();
  if (prompt.unit == PromptUnit::kTokens && replica.block_size > 0) {
    const size_t step = static_cast<size_t>(replica.block_size) * sizeof(TokenId);
    for (size_t at = step; at <= prompt.bytes.size(); at += step) ends_.push_back(static_cast<uint32_t>(at));
  }
  return index_.Insert({.prompt = &prompt, .token_ends = ends_}, replica.slot);
}

void CacheBelief::OnAdmitted(const PromptKey& prompt, const Replica& replica, const AdmittedReport& report) {
  if (report.block_end_bytes.empty() || replica.removed || prompt.unit == PromptUnit::kTokens) return;
  index_.Insert({.prompt = &prompt, .token_ends = report.block_end_bytes}, replica.slot);
}

void CacheBelief::OnUsage(const PromptKey& prompt, const std::string& model, const Replica& replica,
                          const UsageReport& usage) {
  if (prompt.unit == PromptUnit::kTokens) return;
  tokens_.Learn(model, static_cast<int64_t>(prompt.bytes.size()), usage.prompt_tokens);
  const bool more = !usage.block_end_bytes.empty() || !usage.generated_bytes.empty();
  if (!more || replica.removed) return;
  index_.Insert(
      {.prompt = &prompt, .continuation = usage.generated_bytes, .token_ends = usage.block_end_bytes},
      replica.slot);
}

int64_t CacheBelief::IndexedTokens(const Replica& replica, const std::string& model) const {
  return static_cast<int64_t>(static_cast<double>(index_.held_bytes(replica.slot)) /
                              tokens_.BytesPerToken(model));
}

}  // namespace kvring::router
