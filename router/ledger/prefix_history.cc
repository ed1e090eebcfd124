#include "router/ledger/prefix_history.h"

namespace kvring::router {

size_t PrefixHistory::SeenThenAdd(BlockHash root, std::string_view prompt) {
  size_t seen = 0;
  bool open = true;
  for (const BlockHash block : HashChain(root, prompt, kBlockBytes)) {
    open = open && Seen(block);
    if (open) seen += kBlockBytes;
    Add(block);
  }
  return seen;
}

bool PrefixHistory::Seen(BlockHash block) const {
  return young_.contains(block.value) || old_.contains(block.value);
}

void PrefixHistory::Add(BlockHash block) {
  if (young_.size() >= half_ && !young_.contains(block.value)) {
    forgotten_ = forgotten_ || !old_.empty();
    old_.swap(young_);
    young_.clear();
  }
  young_.insert(block.value);
}

}  // namespace kvring::router
