// The device as the executor sees it: memory, one stream, errors. Two builds of the same interface:
// device_cuda.cu on a CUDA device, shim/device_shim.cc on the host. bf16 travels as its bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace kvring::kernels::cuda {

/// In order: each piece of work sees what the one before it wrote.
class Stream {
 public:
  /// Opens device `number`. Errors: no device, driver too old, architecture not built for.
  static absl::StatusOr<std::unique_ptr<Stream>> Open(int number);
  virtual ~Stream() = default;

  virtual void* handle() = 0;
  virtual std::string device_name() const = 0;
  virtual int64_t free_bytes() const = 0;

  /// nullptr when the device has no such room.
  virtual void* Allocate(size_t bytes) = 0;
  virtual void Free(void* data) = 0;
  virtual void Upload(void* to, const void* from, size_t bytes) = 0;
  virtual void CopyOnDevice(void* to, const void* from, size_t bytes) = 0;
  /// Waits for all that was given to the stream. The first error since the last call.
  virtual absl::Status Download(void* to, const void* from, size_t bytes) = 0;
  /// An error code of the runtime, 0 is none.
  virtual void Remember(int code) = 0;

  /// y[rows][outputs] (+)= x[rows][inputs] · w[outputs][inputs]ᵀ; x and w in bf16, sums in f32. cuBLAS on a
  /// device.
  struct Gemm {
    const uint16_t* x;
    const uint16_t* w;
    float* y;
    int rows;
    int outputs;
    int inputs;
    bool add;
  };
  virtual void Multiply(const Gemm& gemm) = 0;
};

/// Elements on the device. Move-only; the stream outlives it.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  static absl::StatusOr<DeviceArray> Make(Stream& stream, size_t size) {
    DeviceArray array;
    array.stream_ = &stream;
    array.size_ = size;
    if (size == 0) return array;
    array.data_ = static_cast<T*>(stream.Allocate(size * sizeof(T)));
    if (array.data_ == nullptr) {
      return absl::ResourceExhaustedError("out of device memory: " + std::to_string(size * sizeof(T)) +
                                          " bytes wanted, " + std::to_string(stream.free_bytes()) + " free");
    }
    return array;
  }
  static absl::StatusOr<DeviceArray> Of(Stream& stream, std::span<const T> values) {
    absl::StatusOr<DeviceArray> array = Make(stream, values.size());
    if (array.ok() && !values.empty()) stream.Upload(array->data_, values.data(), values.size_bytes());
    return array;
  }
  DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~DeviceArray() {
    if (data_ != nullptr) stream_->Free(data_);
  }

  T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  Stream* stream_ = nullptr;
  T* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace kvring::kernels::cuda
