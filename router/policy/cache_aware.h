// CacheAware, the default: least marginal cost over few candidates, homes on an adaptive ring, new branches
// by promise.
//
//   u    = prompt − held_i                 tokens to prefill there (in-flight prompts count; the last
//                                          replica of a session holds at least its prompt of then)
//   own  = B_i + u / R_i                   B: seconds of dispatched prefill not done yet; R: tokens/s
//   q_i  = P_i + 0.5 · D_i                 requests awaiting their first token, and half of those decoding
//   q    = (q_i + mean q) / 2              those who wait now, and those who will, at the mean load
//   e    = share of u that must evict      0 while the replica has room or its capacity is unknown
//   ext  = (u / R_i) · (q · (1 + e) + e)   what it costs others here: delay, and blocks they lose
//   mem  = max(0, need + queued need − room_i) / release rate
//   dec  = 0.2 · slope · D_i · mean output    a longer batch slows each of its members (decode_model.h)
//   choose argmin own + ext + mem + dec
//
// A prompt that goes on where a known one ended (a next turn) is placed by cost alone. One that begins
// something (a new prompt, or a branch off a shared head) also brings the turns that will follow, so it only
// goes where the promised load,
//   p_i = (requests + λ · branches, fading) · slowness_i / w_i,   λ = mean requests per branch, learnt,
// is at most the mean and half a branch: bounded loads (ring.h) on expected instead of present load. A hot
// prefix's home fills up to that bound; then the cheapest next one gets a copy, in ring order, so routers
// that share no state agree.
//
// candidates = all, up to 16 eligible; else the 2 least loaded of the deepest holders and of the next depth,
// 2 ring homes of the branch key, 2 random, the session's last replica.
#pragma once

#include "router/policy/branch_sketch.h"
#include "router/policy/policy.h"
#include "router/policy/ring.h"

namespace kvring::router {

class CacheAware : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

 private:
  struct Promised {
    ReplicaId id;
    double load = 0;
  };

  void Gather(const PickInput& input, Random& random);
  void AddHomes(const PickInput& input);
  void AddHolders(const PickInput& input, Random& random);
  void Add(uint32_t slot);
  static int64_t HeldTokens(const PickInput& input, uint32_t slot, int64_t matched);
  Candidate Score(const PickInput& input, uint32_t slot) const;
  size_t Cheapest(const PickInput& input, const std::vector<Candidate>& candidates, bool branch) const;
  static bool GoesOn(const PickInput& input);
  bool StaysWithSession(const PickInput& input, const Candidate& home, const Candidate& best) const;
  Reason Explain(const PickInput& input, const std::vector<Candidate>& candidates, size_t chosen) const;

  void RefreshBound(const PickInput& input);
  double PromiseOf(const PickInput& input, uint32_t slot) const;
  void Promise(const PickInput& input, uint32_t slot, bool branch);
  double BranchLoad() const { return unit_ * (1 + 1 / branch_share_); }

  Ring ring_;
  BranchSketch sketch_;
  std::vector<Promised> promised_;  // by slot
  double unit_ = 1;                 // what one request counts now; it grows, so older ones fade
  double branch_share_ = 0.2;       // of requests; its inverse is λ
  double bound_ = 0;                // of promised load, for branches
  size_t bound_members_ = 0;
  size_t bound_uses_left_ = 0;

  // Of the choice under way.
  std::vector<uint32_t> slots_;
  std::vector<uint32_t> homes_;
  std::vector<ResidencyIndex::Depth> holders_;
  double mean_queue_ = 0;
};

}  // namespace kvring::router
