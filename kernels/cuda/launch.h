// Launch: a kernel on a stream, under nvcc or on the host shim. A launch that the device refuses is
// remembered by the stream (device.h): asked once per step, not once per kernel.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/dialect.h"

namespace kvring::kernels::cuda {

struct Grid {
  int blocks_x = 1;
  int blocks_y = 1;
  int blocks_z = 1;
  int threads = kWarp;  // of a block
};

template <class... Parameters, class... Arguments>
void Launch(Stream& stream, void (*kernel)(Parameters...), const Grid& grid, Arguments... arguments) {
#if defined(__CUDACC__)
  kernel<<<dim3(static_cast<unsigned>(grid.blocks_x), static_cast<unsigned>(grid.blocks_y),
                static_cast<unsigned>(grid.blocks_z)),
           grid.threads, 0, static_cast<cudaStream_t>(stream.handle())>>>(arguments...);
  stream.Remember(cudaGetLastError());
#else
  (void)stream;
  shim::RunGrid({static_cast<unsigned>(grid.blocks_x), static_cast<unsigned>(grid.blocks_y),
                 static_cast<unsigned>(grid.blocks_z)},
                grid.threads, [&] { kernel(arguments...); });
#endif
}

}  // namespace kvring::kernels::cuda
