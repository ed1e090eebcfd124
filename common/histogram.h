// Histogram: counts of non-negative integers in log-linear buckets (32 per power of two, so a quantile is at
// most 3.2 % above the true value; values below 32 are exact). The layout of HdrHistogram (Tene). Not
// thread-safe.
#pragma once

#include <array>
#include <cstdint>

namespace kvring {

class Histogram {
 public:
  /// Negative values count as 0.
  void Record(int64_t value);
  void Merge(const Histogram& other);

  uint64_t count() const { return count_; }
  double mean() const { return count_ == 0 ? 0.0 : sum_ / static_cast<double>(count_); }
  int64_t max() const { return max_; }
  /// Smallest bucket bound with at least a share q of the values at or below it, q in [0, 1]; 0 when empty.
  int64_t Quantile(double q) const;

 private:
  static constexpr int kSubBits = 5;
  static constexpr int kBuckets = (64 - kSubBits) << kSubBits;

  static int Bucket(uint64_t value);
  static int64_t UpperBound(int bucket);

  std::array<uint64_t, kBuckets> counts_{};
  uint64_t count_ = 0;
  double sum_ = 0;
  int64_t max_ = 0;
};

}  // namespace kvring
