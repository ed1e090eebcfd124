#include "kernels/isa.h"

namespace kvring::kernels {

bool IsSupported(Isa isa) {
  if (isa == Isa::kPlain) return true;
#if KVRING_X86
  __builtin_cpu_init();
  const bool avx2 =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  if (isa == Isa::kAvx2) return avx2;
  return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

Isa BestIsa() { return SupportedIsas().back(); }

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512}) {
    if (IsSupported(isa)) isas.push_back(isa);
  }
  return isas;
}

std::string_view NameOf(Isa isa) {
  switch (isa) {
    case Isa::kPlain:
      return "plain";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace kvring::kernels
