// Fuzz target of the block manager: bytes choose operations on it and on the naive model beside it
// (tests/unit/replica/kv/block_manager_trial.h); any difference ends the process.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/unit/replica/kv/block_manager_trial.h"

namespace {

/// Takes numbers from the bytes; zeros when they are used up.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  uint64_t Below(uint64_t n) { return empty() ? 0 : data_[at_++] % n; }
  bool empty() const { return at_ == size_; }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

}  // namespace

// The first byte is the shape: blocks, block size, window, host tier. Returns the first difference, or
// nothing.
std::string RunBlockManagerTrial(const uint8_t* data, size_t size, bool broken_model) {
  Bytes bytes(data, size);
  const uint64_t shape = bytes.Below(256);
  const auto window = static_cast<int32_t>(shape / 3 % 7);
  kvring::replica::BlockManagerTrial trial({.blocks = 8 + static_cast<int32_t>(shape / 64 * 8),
                                            .block_size = 1 + static_cast<int32_t>(shape % 3),
                                            .window = window,
                                            .tier_slots = window == 0 ? static_cast<int32_t>(shape % 32) : 0,
                                            .broken_model = broken_model},
                                           [&](uint64_t n) { return bytes.Below(n); });
  while (!bytes.empty()) {
    if (std::string fault = trial.Operate(); !fault.empty()) return fault;
    if (std::string fault = trial.Check(); !fault.empty()) return fault;
  }
  return trial.Finish();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string fault = RunBlockManagerTrial(data, size, /*broken_model=*/false);
  if (fault.empty()) return 0;
  std::fprintf(stderr, "%s\n", fault.c_str());
  std::abort();
}
