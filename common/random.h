// Random: a small seeded generator (xoshiro256**, Blackman and Vigna 2018; seeded through SplitMix64). Same
// seed, same sequence on every machine. Pure code takes one by reference; only common/runtime/entropy.h makes
// unpredictable seeds. Not for secrets. Not thread-safe.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace kvring {

/// SplitMix64 finaliser: a bijection of 64 bits, good for turning counters into well-spread numbers.
constexpr uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

class Random {
 public:
  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      word = MixBits(seed);
    }
  }

  /// 64 uniform bits.
  uint64_t Next() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, bound); bound must be positive (Lemire's multiply-shift; bias below 2^-32 for bounds
  /// below 2^32).
  uint64_t Below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(Next()) * bound) >> 64);
  }

  /// Uniform in [0, 1) with 53 bits.
  double Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

  /// Exponential with the given mean.
  double Exponential(double mean) { return -mean * std::log1p(-Uniform()); }

 private:
  std::array<uint64_t, 4> state_{};
};

}  // namespace kvring
