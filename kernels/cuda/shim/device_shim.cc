// The host shim's device: its memory is the host's, and ends at a page that nobody may touch. The matmul
// stands for cuBLAS: bf16 in, f32 sums.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/device.h"
#include "kernels/half.h"

namespace kvring::kernels::cuda {
namespace {

class ShimStream final : public Stream {
 public:
  ~ShimStream() override {
    for (const auto& [data, mapping] : mappings_) munmap(mapping.base, mapping.bytes);
  }
  void* handle() override { return nullptr; }
  std::string device_name() const override { return "host shim"; }
  int64_t free_bytes() const override { return int64_t{1} << 30; }

  void* Allocate(size_t bytes) override {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t room = (bytes + page - 1) / page * page;
    void* base = mmap(nullptr, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    auto* bytes_at = static_cast<std::byte*>(base);
    mprotect(bytes_at + room, page, PROT_NONE);
    void* data = bytes_at + (room - bytes) / alignof(std::max_align_t) * alignof(std::max_align_t);
    mappings_[data] = {base, room + page};
    return data;
  }
  void Free(void* data) override {
    const auto mapping = mappings_.find(data);
    munmap(mapping->second.base, mapping->second.bytes);
    mappings_.erase(mapping);
  }
  void Upload(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  absl::Status Download(void* to, const void* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  void Remember(int) override {}

  void Multiply(const Gemm& g) override {
    for (int r = 0; r < g.rows; ++r) {
      for (int o = 0; o < g.outputs; ++o) {
        const uint16_t* x = g.x + static_cast<int64_t>(r) * g.inputs;
        const uint16_t* w = g.w + static_cast<int64_t>(o) * g.inputs;
        float sum = 0;
        for (int i = 0; i < g.inputs; ++i) sum += Bf16ToFloat(x[i]) * Bf16ToFloat(w[i]);
        float& y = g.y[static_cast<int64_t>(r) * g.outputs + o];
        y = g.add ? y + sum : sum;
      }
    }
  }

 private:
  struct Mapping {
    void* base;
    size_t bytes;
  };
  std::map<void*, Mapping> mappings_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> Stream::Open(int number) {
  if (number != 0)
    return absl::NotFoundError(absl::StrCat("cuda:", number, ": the host shim has one device"));
  return std::make_unique<ShimStream>();
}

}  // namespace kvring::kernels::cuda
