// WaitingQueue: sequences that wait for admission, and the order in which they are to be tried:
//
//   1 higher priority first   2 what was preempted, by rank   3 the tenant served least, then by rank
//
// Served: tokens that a tenant's sequences have computed, output ones counted kOutputWeight times (the
// virtual token counter of Sheng et al. 2024, "Fairness in Serving Large Language Models", section 4). A
// tenant that comes, or comes back, starts no lower than the least served one that is here (or the last that
// was): idle time saves nothing up. With one tenant this is first come, first served. Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "replica/engine/sequence.h"

namespace kvring::replica {

class WaitingQueue {
 public:
  static constexpr int64_t kOutputWeight = 2;

  /// The sequence comes into the engine, or leaves it for good. In between it waits or runs.
  void Enter(const Sequence& sequence);
  void Leave(const Sequence& sequence);

  void Insert(Sequence& sequence);
  void Erase(Sequence& sequence);
  size_t size() const { return size_; }

  /// The first `limit` sequences to try, as if each one before had been admitted and its history computed.
  void Order(size_t limit, std::vector<Sequence*>& out) const;
  /// Tokens that the sequence computes now.
  void Charge(const Sequence& sequence, int32_t tokens);

  /// Weighted tokens of a tenant that has sequences here.
  int64_t served(TenantId tenant) const { return present_.at(tenant).served; }

 private:
  using Queue = std::set<Sequence*, BySequenceRank>;
  /// A tenant's place among the others of a level: by served tokens, then by the rank of its first sequence.
  struct Turn {
    int64_t served;
    SequenceRank first;
    TenantId tenant;
    friend bool operator<(const Turn& a, const Turn& b) {
      return a.served != b.served ? a.served < b.served : a.first < b.first;
    }
  };
  struct Fresh {
    Queue queue;
    std::set<Turn>::iterator turn;
  };
  struct Level {
    Queue returned;  // they hold no blocks, but have run before
    std::map<TenantId, Fresh> fresh;
    std::set<Turn> turns;  // of the tenants in `fresh`
  };
  struct Tenant {
    int64_t served = 0;
    int32_t sequences = 0;
  };

  void InsertFresh(Level& level, Sequence& sequence);
  void EraseFresh(Level& level, Sequence& sequence);
  void RenewTurn(Level& level, TenantId tenant, Fresh& fresh);
  void OrderFresh(const Level& level, size_t limit, std::vector<Sequence*>& out) const;
  int64_t LeastServed() const;

  std::map<int32_t, Level, std::greater<>> levels_;  // by priority
  std::map<TenantId, Tenant> present_;               // with sequences here
  std::map<TenantId, int64_t> served_before_;        // of those that were, as far as kMaxRemembered reaches
  int64_t last_to_leave_ = 0;                        // served tokens of the latest
  size_t size_ = 0;
};

}  // namespace kvring::replica
