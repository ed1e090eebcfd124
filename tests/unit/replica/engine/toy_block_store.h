// ToyBlockStore: the host tier of a ToyExecutor. Some loads can be made to fail; a failed one leaves garbage
// in the block, as the contract allows. Test only.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "replica/kv/block_store.h"
#include "tests/unit/replica/engine/toy_executor.h"

namespace kvring::replica {

class ToyBlockStore final : public BlockStore {
 public:
  /// fail_every: each so many-th load fails; 0: none.
  explicit ToyBlockStore(ToyExecutor& executor, int fail_every = 0)
      : executor_(executor), fail_every_(fail_every) {}

  void Save(BlockId block, int32_t slot, const StoredBlock&) override {
    ++saves;
    const auto numbers = executor_.Block(block);
    slots_[slot].assign(numbers.begin(), numbers.end());
  }
  bool Load(int32_t slot, const StoredBlock&, BlockId block) override {
    ++loads;
    const bool fails = fail_every_ > 0 && loads % fail_every_ == 0;
    if (fails) {
      std::ranges::fill(executor_.Block(block), 12345);
    } else {
      std::ranges::copy(slots_.at(slot), executor_.Block(block).begin());
    }
    return !fails;
  }
  void Forget(int32_t slot) override { slots_.erase(slot); }

  int saves = 0;
  int loads = 0;

 private:
  ToyExecutor& executor_;
  int fail_every_;
  std::map<int32_t, std::vector<uint64_t>> slots_;
};

}  // namespace kvring::replica
