// BlockManager::CheckIntegrity: every invariant, checked the slow way.
#include <algorithm>
#include <string>
#include <vector>

#include "replica/kv/block_manager.h"

namespace kvring::replica {
namespace {

std::string Say(int32_t block, const char* what) { return "block " + std::to_string(block) + ": " + what; }

}  // namespace

std::string BlockManager::CheckIntegrity(std::span<const BlockTable* const> tables) const {
  if (std::string fault = CheckBlocks(); !fault.empty()) return fault;
  if (std::string fault = queue_.CheckIntegrity(); !fault.empty()) return fault;
  if (std::string fault = tier_.CheckIntegrity(); !fault.empty()) return fault;
  return tables.empty() ? "" : CheckTables(tables);
}

// Each block is free, cached or used, and the counts and the hash index say the same.
std::string BlockManager::CheckBlocks() const {
  std::vector<bool> is_free(blocks_.size(), false);
  for (const int32_t block : free_) {
    if (is_free[block]) return Say(block, "twice in the free list");
    is_free[block] = true;
  }
  int32_t cached = 0;
  size_t matchable = 0;
  for (int32_t block = 0; block < total_blocks(); ++block) {
    const Block& b = blocks_[block];
    if (b.references < 0) return Say(block, "negative reference count");
    if (is_free[block] && (b.references != 0 || b.serial != 0))
      return Say(block, "free, but referenced or matchable");
    if (!is_free[block] && b.references == 0 && b.serial == 0)
      return Say(block, "lost: neither free, cached nor used");
    cached += b.references == 0 && b.serial != 0 ? 1 : 0;
    if (b.serial == 0) continue;
    ++matchable;
    const auto entry = index_.find(b.hash);
    if (entry == index_.end() || entry->second != block) return Say(block, "matchable, but not in the index");
  }
  if (matchable != index_.size()) return "the index holds hashes of blocks that are not matchable";
  return cached == queue_.size() ? "" : "wrong count of cached blocks";
}

std::string BlockManager::CheckTables(std::span<const BlockTable* const> tables) const {
  std::vector<int32_t> references(blocks_.size(), 0);
  for (const BlockTable* table : tables) {
    for (const BlockId block : table->blocks) {
      if (block != kNullBlock) ++references[block.value];
    }
  }
  for (int32_t block = 0; block < total_blocks(); ++block) {
    if (references[block] != blocks_[block].references)
      return Say(block, "reference count differs from the tables");
  }
  return "";
}

}  // namespace kvring::replica
