// The device through the CUDA runtime and cuBLAS: one stream; the first error of a step is kept and told at
// its end.
#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <string>

#include "kernels/cuda/device.h"

namespace kvring::kernels::cuda {
namespace {

absl::Status StatusOf(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return absl::OkStatus();
  const std::string message = std::string(what) + ": " + cudaGetErrorString(code);
  if (code == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

__global__ void ProbeKernel() {}

class CudaStream final : public Stream {
 public:
  absl::Status Open(int number) {
    int count = 0;
    if (absl::Status status = StatusOf(cudaGetDeviceCount(&count), "no CUDA device can be used");
        !status.ok())
      return status;
    if (number < 0 || number >= count) {
      return absl::NotFoundError("cuda:" + std::to_string(number) + ": this machine has " +
                                 std::to_string(count) + " devices");
    }
    Remember(cudaSetDevice(number));
    cudaDeviceProp properties;
    Remember(cudaGetDeviceProperties(&properties, number));
    name_ = properties.name;
    // Fails for an architecture that no kernel was built for.
    cudaFuncAttributes attributes;
    const cudaError_t built = cudaFuncGetAttributes(&attributes, ProbeKernel);
    if (built != cudaSuccess) {
      return absl::UnimplementedError("cuda:" + std::to_string(number) + ": " + name_ +
                                      " (compute capability " + std::to_string(properties.major) + "." +
                                      std::to_string(properties.minor) + "): " + cudaGetErrorString(built));
    }
    Remember(cudaStreamCreate(&stream_));
    if (cublasCreate(&blas_) != CUBLAS_STATUS_SUCCESS)
      return absl::InternalError("cuBLAS cannot be started on " + name_);
    cublasSetStream(blas_, stream_);
    return StatusOf(error_, "device");
  }
  ~CudaStream() override {
    if (blas_ != nullptr) cublasDestroy(blas_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  void* handle() override { return stream_; }
  std::string device_name() const override { return name_; }
  int64_t free_bytes() const override {
    size_t free = 0;
    size_t total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<int64_t>(free) : 0;
  }

  void* Allocate(size_t bytes) override {
    void* data = nullptr;
    if (cudaMalloc(&data, bytes) == cudaSuccess) return data;
    cudaGetLastError();  // told by the caller, and not again by the step
    return nullptr;
  }
  void Free(void* data) override { cudaFree(data); }
  void Upload(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) Remember(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_));
  }
  void CopyOnDevice(void* to, const void* from, size_t bytes) override {
    Remember(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
  }
  absl::Status Download(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) Remember(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_));
    Remember(cudaStreamSynchronize(stream_));
    const cudaError_t error = error_;
    error_ = cudaSuccess;
    return StatusOf(error, name_.c_str());
  }
  void Remember(int code) override {
    if (error_ == cudaSuccess) error_ = static_cast<cudaError_t>(code);
  }

  // Row-major y = x · wᵀ is column-major yᵀ = w · xᵀ.
  void Multiply(const Gemm& g) override {
    const float one = 1;
    const float beta = g.add ? 1 : 0;
    const cublasStatus_t status = cublasGemmEx(
        blas_, CUBLAS_OP_T, CUBLAS_OP_N, g.outputs, g.rows, g.inputs, &one, g.w, CUDA_R_16BF, g.inputs, g.x,
        CUDA_R_16BF, g.inputs, &beta, g.y, CUDA_R_32F, g.outputs, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (status != CUBLAS_STATUS_SUCCESS) Remember(cudaErrorUnknown);
  }

 private:
  std::string name_;
  cudaStream_t stream_ = nullptr;
  cublasHandle_t blas_ = nullptr;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stream>> Stream::Open(int number) {
  auto stream = std::make_unique<CudaStream>();
  if (absl::Status status = stream->Open(number); !status.ok()) return status;
  return stream;
}

}  // namespace kvring::kernels::cuda
