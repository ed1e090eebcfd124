// What runs a fuzz target where there is no libFuzzer: inputs made from a seed, printed first.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

#include "common/random.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

/// [RUNS [SEED]] of a command line; RUNS with an s, like 600s: for that many seconds.
struct FuzzPlan {
  FuzzPlan(std::span<char*> arguments, const char* usual_runs) {
    const std::string_view amount = arguments.empty() ? usual_runs : arguments[0];
    limit = std::atol(amount.data());
    timed = amount.ends_with('s');
    if (arguments.size() > 1) seed = std::strtoull(arguments[1], nullptr, 10);
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    std::fflush(stdout);
  }

  long limit = 0;
  bool timed = false;
  uint64_t seed = 1;
};

/// Gives the target what `make_input(random)` returns, a string or bytes, again and again; main's exit code.
template <class MakeInput>
int RunFuzz(const FuzzPlan& plan, kvring::Random& random, MakeInput make_input) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(plan.limit);
  long runs = 0;
  for (; plan.timed ? std::chrono::steady_clock::now() < end : runs < plan.limit; ++runs) {
    const auto& input = make_input(random);
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  }
  std::printf("%ld runs\n", runs);
  return 0;
}
