// Isa: which instruction set a kernel runs on, chosen once at start by asking the CPU. Every kernel takes it
// as an argument, so that a test runs all of them against the plain one on the same machine. Pure values,
// apart from the CPUID query.
#pragma once

#include <string_view>
#include <vector>

namespace kvring::kernels {

enum class Isa {
  kPlain,   // standard C++
  kAvx2,    // AVX2 + FMA + F16C
  kAvx512,  // AVX-512 F, BW, DQ, VL, VNNI, BF16
};

bool IsSupported(Isa isa);
/// The fastest of this CPU.
Isa BestIsa();
/// All of this CPU, kPlain first.
std::vector<Isa> SupportedIsas();
std::string_view NameOf(Isa isa);

}  // namespace kvring::kernels

#if defined(__x86_64__)
#define KVRING_X86 1
// Marks a function that may use the set; it is only ever called after IsSupported said yes.
#define KVRING_TARGET_AVX2 __attribute__((target("avx2,fma,f16c")))
#define KVRING_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c")))
#endif
