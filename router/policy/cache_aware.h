// CacheAware, the default: least marginal cost over few candidates, homes on an adaptive ring.
//
//   u    = prompt − matched_i                  tokens to prefill there (in-flight prompts count as matched)
//   own  = (W_i + u) / R_i                     W: prefill tokens dispatched and pending; R: prefill tokens/s
//   q    = P_i + 0.5 · D_i                     requests awaiting their first token, and half of those decoding
//   ext  = (u / R_i) · (q · (1 + e) + e)       what serving it here costs others: delay now, and blocks they lose
//   e    = share of u that must evict          0 while the replica has room
//   dec  = 0.2 · step_i · D_i · mean_out       a longer batch slows each of its members
//   choose argmin own + ext + dec
//
// candidates = all, up to 16 eligible; else the 2 least loaded of the deepest holders and of the next depth, 2 ring homes of
// the branch key, 2 random, the session's last replica. On an idle fleet ext is near 0 and requests spread; loaded, u weighs
// (1 + q) and affinity emerges; a hot prefix's home grows W until the next home in ring order is cheaper and gets a copy.
#pragma once

#include "router/policy/branch_sketch.h"
#include "router/policy/policy.h"
#include "router/policy/ring.h"

namespace kvring::router {

class CacheAware : public Policy {
 public:
  Pick Choose(const PickInput& input, Random& random) override;

 private:
  void Gather(const PickInput& input, uint64_t branch_key, Random& random);
  void AddHolders(const PickInput& input, Random& random);
  void Add(uint32_t slot);
  Candidate Score(const PickInput& input, uint32_t slot) const;
  Reason Explain(const PickInput& input, const Candidate& chosen, uint32_t slot) const;

  Ring ring_;
  BranchSketch sketch_;
  std::vector<uint32_t> slots_;                 // candidates of the choice under way
  std::vector<uint32_t> homes_;                 // ring homes of the choice under way
  std::vector<ResidencyIndex::Depth> holders_;
};

}  // namespace kvring::router
