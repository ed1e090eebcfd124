// HostBlockStore: the host tier's slots, in memory or in a file. A slot is a header (what the block is) and
// the block's bytes, both under checksums, so that a slot that was torn by a crash, or has rotted, is found
// out when it is read and counts as empty. A file belongs to one process at a time and to one fingerprint
// (CpuExecutor::kv_fingerprint): what it holds of another is forgotten. It holds what users wrote, and is
// readable by its owner alone. A slot that cannot be written is empty, logged once. Used from the engine's
// thread; the pool must outlive it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/runtime/files.h"
#include "kernels/aligned_buffer.h"
#include "kernels/kv_pool.h"
#include "replica/kv/block_store.h"
#include "replica/kv/host_tier.h"

namespace kvring::replica {

struct HostBlockStoreOptions {
  int64_t bytes = 0;      // of all slots at most
  std::string directory;  // of the file `kv-blocks`; empty: in memory
  uint64_t fingerprint = 0;
};

class HostBlockStore final : public BlockStore {
 public:
  /// InvalidArgument: no room for one slot. Errors of the file name it.
  static absl::StatusOr<std::unique_ptr<HostBlockStore>> Open(kernels::KvPool& pool,
                                                              const HostBlockStoreOptions& options);

  int32_t slots() const { return slots_; }
  /// Of the keyed chain (BlockManagerOptions::key): blocks are found again under the same one.
  uint64_t key() const { return key_; }
  /// What the file holds from before, the least recently saved first.
  absl::StatusOr<std::vector<RestoredSlot>> Restore();

  void Save(BlockId block, int32_t slot, const StoredBlock& what) override;
  bool Load(int32_t slot, const StoredBlock& what, BlockId block) override;
  void Forget(int32_t slot) override;

 private:
  HostBlockStore(kernels::KvPool& pool, const HostBlockStoreOptions& options, int64_t header_bytes,
                 int64_t slot_bytes);
  absl::Status OpenFile(const std::string& directory);
  int64_t OffsetOf(int32_t slot) const;
  std::byte* Image(int32_t slot);
  void LogOnce(const absl::Status& status);

  kernels::KvPool& pool_;
  const uint64_t fingerprint_;
  const int64_t header_bytes_;
  const int64_t slot_bytes_;
  const int32_t slots_;
  uint64_t key_;
  uint64_t next_stamp_ = 1;
  std::optional<OwnedFile> file_;
  kernels::AlignedBuffer memory_;  // all slots, or the one that is read or written
  bool logged_ = false;
};

}  // namespace kvring::replica
