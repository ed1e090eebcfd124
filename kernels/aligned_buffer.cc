#include "kernels/aligned_buffer.h"

#include <sys/mman.h>

#include "common/check.h"

namespace kvring::kernels {

AlignedBuffer::AlignedBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  KVRING_CHECK(data != MAP_FAILED);
  madvise(data, bytes, MADV_HUGEPAGE);  // a wish: without huge pages it is only slower
  data_ = data;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace kvring::kernels
