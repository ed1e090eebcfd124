#include "replica/model/host_block_store.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/runtime/entropy.h"
#include "common/runtime/log.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

static_assert(std::endian::native == std::endian::little, "the file holds little-endian integers");

constexpr int64_t kPage = 4096;
constexpr uint64_t kFileMagic = 0x31454c4946564b6bULL;  // "kKVFILE1"
constexpr uint64_t kSlotMagic = 0x31544f4c53564b6bULL;  // "kKVSLOT1"

struct FileHeader {
  uint64_t magic;
  uint64_t fingerprint;
  uint64_t slot_bytes;
  uint64_t key;
  uint64_t checksum;  // of the fields before it
};

// The tokens follow.
struct SlotHeader {
  uint64_t magic;
  uint64_t owner;  // fingerprint and key of the file
  uint64_t stamp;
  uint64_t hash;
  uint64_t parent;
  uint64_t check;
  uint64_t root_hash;
  uint64_t root_check;
  int64_t depth;
  uint64_t tokens;
  uint64_t payload_checksum;
  uint64_t header_checksum;  // of the fields before it and of the tokens
};

uint64_t Checksum(const void* data, size_t bytes) {
  return HashName({static_cast<const char*>(data), bytes});
}

uint64_t ChecksumOf(const FileHeader& header) { return Checksum(&header, offsetof(FileHeader, checksum)); }

uint64_t ChecksumOf(const SlotHeader& header, const std::byte* tokens) {
  const uint64_t of_tokens = Checksum(tokens, header.tokens * sizeof(TokenId));
  return Checksum(&header, offsetof(SlotHeader, header_checksum)) ^ std::rotl(of_tokens, 1);
}

// The header of an image, if it is whole and belongs to this file.
std::optional<SlotHeader> ReadHeader(const std::byte* image, uint64_t owner, int32_t block_size) {
  SlotHeader header;
  std::memcpy(&header, image, sizeof(header));
  const bool ours = header.magic == kSlotMagic && header.owner == owner &&
                    header.tokens == static_cast<uint64_t>(block_size);
  if (!ours || header.header_checksum != ChecksumOf(header, image + sizeof(header))) return std::nullopt;
  return header;
}

StoredBlock Describe(const SlotHeader& header, const std::byte* tokens) {
  StoredBlock block{{header.hash},
                    {header.parent},
                    header.check,
                    {{header.root_hash}, header.root_check},
                    static_cast<int32_t>(header.depth),
                    std::vector<TokenId>(header.tokens)};
  std::memcpy(block.tokens.data(), tokens, header.tokens * sizeof(TokenId));
  return block;
}

int64_t RoundToPage(int64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

}  // namespace

absl::StatusOr<std::unique_ptr<HostBlockStore>> HostBlockStore::Open(kernels::KvPool& pool,
                                                                     const HostBlockStoreOptions& options) {
  const int64_t header_bytes =
      RoundToPage(static_cast<int64_t>(sizeof(SlotHeader) + pool.shape().block_size * sizeof(TokenId)));
  const int64_t slot_bytes = header_bytes + RoundToPage(pool.shape().block_bytes());
  if (options.bytes < slot_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("host tier: ", options.bytes, " bytes are less than one block of ", slot_bytes));
  }
  std::unique_ptr<HostBlockStore> store(new HostBlockStore(pool, options, header_bytes, slot_bytes));
  if (!options.directory.empty()) KVRING_RETURN_IF_ERROR(store->OpenFile(options.directory));
  return store;
}

HostBlockStore::HostBlockStore(kernels::KvPool& pool, const HostBlockStoreOptions& options,
                               int64_t header_bytes, int64_t slot_bytes)
    : pool_(pool),
      fingerprint_(options.fingerprint),
      header_bytes_(header_bytes),
      slot_bytes_(slot_bytes),
      slots_(static_cast<int32_t>(
          std::min<int64_t>(options.bytes / slot_bytes, std::numeric_limits<int32_t>::max()))),
      key_(RandomSeed()),
      memory_(static_cast<size_t>(options.directory.empty() ? slot_bytes * slots_ : slot_bytes)) {}

absl::Status HostBlockStore::OpenFile(const std::string& directory) {
  KVRING_ASSIGN_OR_RETURN(OwnedFile file,
                          OwnedFile::Open(absl::StrCat(directory, "/kv-blocks"), OffsetOf(slots_)));
  file_ = std::move(file);
  FileHeader header{};
  const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(&header), sizeof(header));
  KVRING_RETURN_IF_ERROR(file_->Read(0, bytes));
  if (header.magic == kFileMagic && header.checksum == ChecksumOf(header) &&
      header.fingerprint == fingerprint_ && header.slot_bytes == static_cast<uint64_t>(slot_bytes_)) {
    key_ = header.key;
    return absl::OkStatus();
  }
  // Of another model, or none yet: slots of another key are never taken for ours.
  header = {kFileMagic, fingerprint_, static_cast<uint64_t>(slot_bytes_), key_, 0};
  header.checksum = ChecksumOf(header);
  return file_->Write(0, bytes);
}

// In the file.
int64_t HostBlockStore::OffsetOf(int32_t slot) const { return kPage + slot * slot_bytes_; }

std::byte* HostBlockStore::Image(int32_t slot) {
  return memory_.as<std::byte>() + (file_.has_value() ? 0 : slot * slot_bytes_);
}

absl::StatusOr<std::vector<RestoredSlot>> HostBlockStore::Restore() {
  std::vector<std::pair<uint64_t, RestoredSlot>> found;
  for (int32_t slot = 0; slot < slots_ && file_.has_value(); ++slot) {
    std::byte* image = Image(slot);
    KVRING_RETURN_IF_ERROR(file_->Read(OffsetOf(slot), {image, static_cast<size_t>(header_bytes_)}));
    const auto header = ReadHeader(image, fingerprint_ ^ key_, pool_.shape().block_size);
    if (header.has_value())
      found.push_back({header->stamp, {slot, Describe(*header, image + sizeof(SlotHeader))}});
  }
  std::ranges::sort(found, {}, [](const auto& f) { return f.first; });
  std::vector<RestoredSlot> restored;
  for (auto& [stamp, slot] : found) {
    next_stamp_ = stamp + 1;
    restored.push_back(std::move(slot));
  }
  return restored;
}

void HostBlockStore::Save(BlockId block, int32_t slot, const StoredBlock& what) {
  std::byte* image = Image(slot);
  pool_.ReadBlock(block, image + header_bytes_);
  SlotHeader header{kSlotMagic,
                    fingerprint_ ^ key_,
                    next_stamp_++,
                    what.hash.value,
                    what.parent.value,
                    what.check,
                    what.root.hash.value,
                    what.root.check,
                    what.depth,
                    what.tokens.size(),
                    Checksum(image + header_bytes_, static_cast<size_t>(pool_.shape().block_bytes())),
                    0};
  std::memcpy(image + sizeof(header), what.tokens.data(), what.tokens.size() * sizeof(TokenId));
  header.header_checksum = ChecksumOf(header, image + sizeof(header));
  std::memcpy(image, &header, sizeof(header));
  if (file_.has_value()) LogOnce(file_->Write(OffsetOf(slot), {image, static_cast<size_t>(slot_bytes_)}));
}

bool HostBlockStore::Load(int32_t slot, const StoredBlock& what, BlockId block) {
  std::byte* image = Image(slot);
  if (file_.has_value()) {
    const absl::Status read = file_->Read(OffsetOf(slot), {image, static_cast<size_t>(slot_bytes_)});
    LogOnce(read);
    if (!read.ok()) return false;
  }
  const auto header = ReadHeader(image, fingerprint_ ^ key_, pool_.shape().block_size);
  const std::byte* payload = image + header_bytes_;
  // A write that failed leaves what was there before: whole, but not what is asked for.
  const bool whole =
      header.has_value() && Describe(*header, image + sizeof(SlotHeader)) == what &&
      header->payload_checksum == Checksum(payload, static_cast<size_t>(pool_.shape().block_bytes()));
  if (whole) pool_.WriteBlock(block, payload);
  return whole;
}

void HostBlockStore::Forget(int32_t slot) {
  std::memset(Image(slot), 0, sizeof(SlotHeader));
  if (file_.has_value()) LogOnce(file_->Write(OffsetOf(slot), {Image(slot), sizeof(SlotHeader)}));
}

void HostBlockStore::LogOnce(const absl::Status& status) {
  if (status.ok() || std::exchange(logged_, true)) return;
  Log(LogLevel::kWarn, "replica", "host tier cannot be used in part", {{"error", status.ToString()}});
}

}  // namespace kvring::replica
