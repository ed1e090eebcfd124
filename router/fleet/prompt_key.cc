#include "router/fleet/prompt_key.h"

namespace kvring::router {
namespace {

constexpr uint64_t kTokenSalt = 0x746f6b656e730000ULL;

PromptKey KeyOf(PromptUnit unit, uint64_t unit_salt, const CacheIdentity& identity, std::string_view bytes) {
  PromptKey key;
  key.unit = unit;
  key.root = {ChainRoot(identity).value ^ unit_salt};
  key.chain = HashChain(key.root, bytes, kIndexBlockBytes);
  key.bytes = bytes;
  return key;
}

}  // namespace

PromptKey MakePromptKey(const CacheIdentity& identity, std::string_view canonical_bytes) {
  return KeyOf(PromptUnit::kBytes, 0, identity, canonical_bytes);
}

PromptKey MakePromptKey(const CacheIdentity& identity, std::span<const TokenId> tokens) {
  return KeyOf(PromptUnit::kTokens, kTokenSalt, identity,
               {reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes()});
}

BlockHash UnsaltedRoot(const PromptKey& prompt) {
  return {prompt.unit == PromptUnit::kTokens ? prompt.root.value ^ kTokenSalt : prompt.root.value};
}

}  // namespace kvring::router
