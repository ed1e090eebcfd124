#include "common/block_hash.h"

#if defined(__x86_64__)
#include <xxh_x86dispatch.h>  // the same hashes by the widest vectors that the machine has
#else
#include <xxhash.h>
#endif

#include <bit>
#include <string>

#include "common/check.h"

namespace kvring {
namespace {

static_assert(std::endian::native == std::endian::little,
              "token blocks are hashed as little-endian 32-bit integers");

// Folded 64x64 -> 128 multiply (the mixer of wyhash): every output bit depends on every bit of both inputs,
// and order counts because the two sides meet different constants.
BlockHash Mix(BlockHash parent, uint64_t block) {
  const auto product =
      static_cast<unsigned __int128>(parent.value ^ 0xa0761d6478bd642fULL) * (block ^ 0xe7037ed1a0b428dbULL);
  return {static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64) ^
          std::rotl(parent.value, 32)};
}

void AppendField(std::string& out, std::string_view field) {
  const uint64_t size = field.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof(size));
  out.append(field);
}

}  // namespace

BlockHash ChainRoot(const CacheIdentity& identity) {
  std::string fields;
  AppendField(fields, identity.model);
  AppendField(fields, identity.adapter);
  AppendField(fields, identity.salt);
  return {XXH3_64bits(fields.data(), fields.size())};
}

BlockHash ChainNext(BlockHash parent, std::string_view block) {
  return Mix(parent, XXH3_64bits(block.data(), block.size()));
}

BlockHash ChainNext(BlockHash parent, std::span<const TokenId> block) {
  return Mix(parent, XXH3_64bits(block.data(), block.size_bytes()));
}

uint64_t KeyedNext(uint64_t parent, std::span<const TokenId> block, uint64_t key) {
  return Mix({parent}, XXH3_64bits_withSeed(block.data(), block.size_bytes(), key)).value;
}

std::vector<BlockHash> HashChain(BlockHash root, std::string_view bytes, size_t block_bytes) {
  KVRING_CHECK(block_bytes > 0);
  std::vector<BlockHash> chain;
  chain.reserve(bytes.size() / block_bytes);
  for (size_t at = 0; at + block_bytes <= bytes.size(); at += block_bytes) {
    root = ChainNext(root, bytes.substr(at, block_bytes));
    chain.push_back(root);
  }
  return chain;
}

std::vector<BlockHash> HashChain(BlockHash root, std::span<const TokenId> tokens, size_t block_tokens) {
  return HashChain(root, std::string_view(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()),
                   block_tokens * sizeof(TokenId));
}

uint64_t HashProbe() {
  const BlockHash root = ChainRoot({.model = "probe", .adapter = "a", .salt = "s"});
  return ChainNext(ChainNext(root, std::string_view("kvring")), std::string_view("probe")).value;
}

uint64_t HashName(std::string_view name) { return XXH3_64bits(name.data(), name.size()); }

}  // namespace kvring
