// Access: who may ask, under which names, and with which keys replicas are asked: the part of the
// configuration that changes while the router runs. One for both fronts; readers take a snapshot. A key that
// stays over a change keeps what it has used. Thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/gateway/key_limiter.h"

namespace kvring::router {

struct ApiKeyRule {
  std::string name;  // in logs and metrics; the key itself never is
  std::string key;
  KeyLimits limits;
  bool isolate = false;  // a cache of its own: prompts of other keys never hit what this one's filled
};

struct AccessRules {
  std::vector<ApiKeyRule> keys;                     // not empty: every route but health needs one
  std::map<std::string, std::string> aliases;       // model name as asked -> as served
  std::map<std::string, std::string> replica_keys;  // by URL: bearer token that a replica wants
};

/// One key and what it has under way. Thread-safe.
class ApiKey {
 public:
  explicit ApiKey(const ApiKeyRule& rule);

  const std::string& name() const { return name_; }
  /// Of the caches of an isolated key; empty: it shares. Follows from the key alone, so that all routers
  /// agree, and tells nothing of it.
  const std::string& salt() const { return salt_; }
  bool Is(std::string_view given) const;
  std::optional<Duration> Begin(Instant now);
  void End(int64_t tokens);

 private:
  friend class Access;
  const std::string name_;
  const std::string key_;
  const std::string salt_;
  absl::Mutex mutex_;
  KeyLimiter limiter_ ABSL_GUARDED_BY(mutex_);
};

struct AccessView {
  std::vector<std::shared_ptr<ApiKey>> keys;  // shared with running requests
  std::map<std::string, std::string> aliases;
  std::map<std::string, std::string> replica_keys;

  bool open() const { return keys.empty(); }
  /// Null: no such key. Takes equal time for every key of the same length.
  std::shared_ptr<ApiKey> Find(std::string_view given) const;
  /// As "Authorization: Bearer KEY" gives it.
  std::shared_ptr<ApiKey> FindBearer(std::string_view authorization) const;
};

class Access {
 public:
  explicit Access(const AccessRules& rules = {}) { Replace(rules); }

  std::shared_ptr<const AccessView> view() const {
    absl::MutexLock lock(&mutex_);
    return view_;
  }
  void Replace(const AccessRules& rules);
  /// For a member added while the router runs; stays over Replace, unless that names the same URL.
  void SetReplicaKey(const std::string& url, const std::string& key);

 private:
  mutable absl::Mutex mutex_;
  std::shared_ptr<const AccessView> view_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::string> added_ ABSL_GUARDED_BY(mutex_);  // by SetReplicaKey
};

}  // namespace kvring::router
