#include "router/events/kv_event_translator.h"

#include <span>

namespace kvring::router {

KvEventTranslator::Translated KvEventTranslator::Translate(const KvEventBatch& batch,
                                                           const std::string& model) {
  Translated out;
  for (const KvEvent& event : batch.events) {
    switch (event.kind) {
      case KvEvent::Kind::kStored:
        if (event.on_gpu) Store(event, model, out);
        break;
      case KvEvent::Kind::kRemoved:
        if (event.on_gpu) Remove(event, out);
        break;
      case KvEvent::Kind::kCleared:
        known_.clear();
        out.events.push_back({.kind = CacheEventKind::kCleared});
        break;
    }
  }
  return out;
}

void KvEventTranslator::Store(const KvEvent& event, const std::string& model, Translated& out) {
  const std::string& name = event.adapter.empty() ? model : event.adapter;
  Known parent{ChainRoot({.model = name}), event.plain};
  std::optional<BlockHash> parent_chain;
  if (event.parent) {
    const auto known = known_.find(*event.parent);
    if (known == known_.end()) {
      const BlockHash unknown{~*event.parent};
      out.events.push_back({CacheEventKind::kStored, BlockHash{*event.parent}, unknown});
      return;
    }
    parent = {known->second.chain, known->second.usable && event.plain};
    parent_chain = parent.chain;
  }
  if (parent.usable) out.block_tokens = event.block_tokens;
  const auto size = static_cast<size_t>(event.block_tokens);
  for (size_t i = 0; i < event.hashes.size(); ++i) {
    parent.chain = ChainNext(parent.chain, std::span(event.tokens).subspan(i * size, size));
    if (known_.size() < max_blocks_ || known_.contains(event.hashes[i])) known_[event.hashes[i]] = parent;
    if (!parent.usable) continue;
    out.events.push_back({CacheEventKind::kStored, parent.chain, parent_chain});
    parent_chain = parent.chain;
  }
}

void KvEventTranslator::Remove(const KvEvent& event, Translated& out) {
  for (const uint64_t hash : event.hashes) {
    const auto known = known_.find(hash);
    if (known == known_.end()) continue;
    if (known->second.usable)
      out.events.push_back({CacheEventKind::kRemoved, known->second.chain, std::nullopt});
    known_.erase(known);
  }
}

}  // namespace kvring::router
