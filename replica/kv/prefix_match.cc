// BlockManager: hashing a history and finding its longest cached prefix.
#include <algorithm>

#include "replica/kv/block_manager.h"

namespace kvring::replica {

std::span<const TokenId> BlockManager::Slice(std::span<const TokenId> tokens, int32_t index) const {
  return tokens.subspan(static_cast<size_t>(index) * block_size_, block_size_);
}

std::span<const TokenId> BlockManager::StoredTokens(int32_t block) const {
  return Slice(stored_tokens_, block);
}

void BlockManager::HashUpTo(BlockTable& table, std::span<const TokenId> tokens, int32_t blocks) const {
  for (auto i = static_cast<int32_t>(table.hashes.size()); i < blocks; ++i) {
    table.hashes.push_back(chain_(table.parent_hash(i), Slice(tokens, i)));
  }
  if (!Keyed()) return;
  for (auto i = static_cast<int32_t>(table.checks.size()); i < blocks; ++i) {
    table.checks.push_back(
        KeyedNext(i == 0 ? table.root.check : table.checks.back(), Slice(tokens, i), key_));
  }
}

BlockManager::Lookup BlockManager::Find(const BlockTable& table, std::span<const TokenId> tokens,
                                        int32_t index, int32_t parent) const {
  const auto entry = index_.find(table.hashes[index]);
  if (entry == index_.end()) return {};
  const Block& candidate = blocks_[entry->second];
  // Serials are never reused: equal ones mean the same registration of the same block.
  const bool same_before = window_ > 0  ? candidate.check == table.checks[index]
                           : index == 0 ? candidate.parent == kNone
                                        : candidate.parent_serial == blocks_[parent].serial;
  const bool equal = same_before && candidate.root == table.root &&
                     std::ranges::equal(StoredTokens(entry->second), Slice(tokens, index));
  return equal ? Lookup{.block = entry->second} : Lookup{.collided = entry->second};
}

void BlockManager::FindPrefix(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens,
                              Prefix& prefix) const {
  prefix.first = 0;
  prefix.blocks.clear();
  prefix.collided = false;
  if (!prefix_caching_) return;
  const int32_t limit = std::min(max_tokens, static_cast<int32_t>(tokens.size())) / block_size_;
  if (window_ > 0) return FindPrefixInWindow(table, tokens, limit, prefix);
  FindPrefixFromRoot(table, tokens, limit, prefix);
}

void BlockManager::FindPrefixFromRoot(BlockTable& table, std::span<const TokenId> tokens, int32_t limit,
                                      Prefix& prefix) const {
  int32_t parent = kNone;
  for (int32_t index = 0; index < limit; ++index) {
    HashUpTo(table, tokens, index + 1);
    const Lookup found = Find(table, tokens, index, parent);
    prefix.collided = found.collided != kNone;
    if (found.block == kNone) return;
    prefix.blocks.push_back(found.block);
    parent = found.block;
  }
}

// The longest prefix of which the cache holds all that the position after it sees. From the end: a block that
// is missing ends every prefix that would need it, so each block is looked up once.
void BlockManager::FindPrefixInWindow(BlockTable& table, std::span<const TokenId> tokens, int32_t limit,
                                      Prefix& prefix) const {
  HashUpTo(table, tokens, limit);
  int32_t end = limit;
  // Of a window inside one block the last block counts all the same: a prefix that nothing holds is not
  // found.
  for (int32_t index = limit - 1; index >= 0 && index >= std::min(FirstSeenBlock(end * block_size_), end - 1);
       --index) {
    const Lookup found = Find(table, tokens, index, kNone);
    if (found.block != kNone) {
      prefix.blocks.push_back(found.block);
      continue;
    }
    prefix.collided |= found.collided != kNone;
    prefix.blocks.clear();
    end = index;
  }
  std::ranges::reverse(prefix.blocks);
  prefix.first = end - static_cast<int32_t>(prefix.blocks.size());
}

int32_t BlockManager::Match(BlockTable& table, std::span<const TokenId> tokens, int32_t max_tokens) const {
  Prefix prefix;
  FindPrefix(table, tokens, max_tokens, prefix);
  return (prefix.end() + BlocksInTier(table, tokens, prefix.end(), max_tokens)) * block_size_;
}

bool BlockManager::IsBeingComputed(BlockTable& table, std::span<const TokenId> tokens,
                                   int32_t max_tokens) const {
  if (announced_.empty()) return false;
  const int32_t next = Match(table, tokens, max_tokens) / block_size_;
  if (next >= max_tokens / block_size_) return false;
  HashUpTo(table, tokens, next + 1);
  return announced_.contains(table.hashes[next]);
}

}  // namespace kvring::replica
