#include "router/gateway/access.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/net/http_message.h"

namespace kvring::router {
namespace {

std::string SaltOf(const ApiKeyRule& rule) {
  if (!rule.isolate) return "";
  const std::string text = absl::StrCat("kvring cache of ", rule.key);
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString({reinterpret_cast<const char*>(digest), 16});
}

}  // namespace

ApiKey::ApiKey(const ApiKeyRule& rule)
    : name_(rule.name), key_(rule.key), salt_(SaltOf(rule)), limiter_(rule.limits) {}

bool ApiKey::Is(std::string_view given) const {
  return key_.size() == given.size() && CRYPTO_memcmp(key_.data(), given.data(), given.size()) == 0;
}

std::optional<Duration> ApiKey::Begin(Instant now) {
  absl::MutexLock lock(&mutex_);
  return limiter_.Begin(now);
}

void ApiKey::End(int64_t tokens) {
  absl::MutexLock lock(&mutex_);
  limiter_.End(tokens);
}

std::shared_ptr<ApiKey> AccessView::Find(std::string_view given) const {
  std::shared_ptr<ApiKey> found;
  for (const std::shared_ptr<ApiKey>& key : keys) {
    if (key->Is(given)) found = key;
  }
  return found;
}

std::shared_ptr<ApiKey> AccessView::FindBearer(std::string_view authorization) const {
  constexpr std::string_view kBearer = "bearer ";
  if (authorization.size() <= kBearer.size()) return nullptr;
  if (!net::EqualIgnoringCase(authorization.substr(0, kBearer.size()), kBearer)) return nullptr;
  return Find(authorization.substr(kBearer.size()));
}

void Access::Replace(const AccessRules& rules) {
  auto fresh = std::make_shared<AccessView>();
  fresh->aliases = rules.aliases;
  fresh->replica_keys = rules.replica_keys;
  absl::MutexLock lock(&mutex_);
  for (const ApiKeyRule& rule : rules.keys) {
    std::shared_ptr<ApiKey> kept = view_ == nullptr ? nullptr : view_->Find(rule.key);
    if (kept != nullptr && kept->name() == rule.name && kept->salt() == SaltOf(rule)) {
      absl::MutexLock key_lock(&kept->mutex_);
      kept->limiter_.SetLimits(rule.limits);
    } else {
      kept = std::make_shared<ApiKey>(rule);
    }
    fresh->keys.push_back(std::move(kept));
  }
  fresh->replica_keys.insert(added_.begin(), added_.end());
  view_ = std::move(fresh);
}

void Access::SetReplicaKey(const std::string& url, const std::string& key) {
  absl::MutexLock lock(&mutex_);
  auto fresh = std::make_shared<AccessView>(*view_);
  added_[url] = fresh->replica_keys[url] = key;
  view_ = std::move(fresh);
}

}  // namespace kvring::router
