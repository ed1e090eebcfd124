// AlignedBuffer: zeroed memory for weights, KV blocks and scratch: 64-byte aligned, on huge pages where the
// kernel gives them, touched by nobody until used (so a pool takes memory only as its blocks are written).
// Move-only.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace kvring::kernels {

class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  /// Ends the process when the machine has no address space left (limits are checked where the size is asked
  /// for).
  explicit AlignedBuffer(size_t bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~AlignedBuffer();

  size_t size_bytes() const { return bytes_; }
  template <class T>
  T* as() {
    return static_cast<T*>(data_);
  }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace kvring::kernels
