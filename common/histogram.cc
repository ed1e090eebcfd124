#include "common/histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kvring {

// value < 32: bucket = value. Else octave o = width - 6 >= 0 and bucket = (o + 1) * 32 + the 5 bits after the
// leading one.
int Histogram::Bucket(uint64_t value) {
  if (value < (1u << kSubBits)) return static_cast<int>(value);
  const int shift = std::bit_width(value) - 1 - kSubBits;
  return ((shift + 1) << kSubBits) + static_cast<int>((value >> shift) & ((1u << kSubBits) - 1));
}

int64_t Histogram::UpperBound(int bucket) {
  if (bucket < (1 << kSubBits)) return bucket;
  const int shift = (bucket >> kSubBits) - 1;
  const uint64_t lower = static_cast<uint64_t>((1 << kSubBits) + (bucket & ((1 << kSubBits) - 1))) << shift;
  return static_cast<int64_t>(lower + (uint64_t{1} << shift) - 1);
}

void Histogram::Record(int64_t value) {
  value = std::max<int64_t>(value, 0);
  ++counts_[Bucket(static_cast<uint64_t>(value))];
  ++count_;
  sum_ += static_cast<double>(value);
  max_ = std::max(max_, value);
}

void Histogram::Merge(const Histogram& other) {
  for (int i = 0; i < kBuckets; ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

int64_t Histogram::Quantile(double q) const {
  if (count_ == 0) return 0;
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(q * static_cast<double>(count_))));
  uint64_t seen = 0;
  for (int i = 0; i < kBuckets; ++i) {
    seen += counts_[i];
    if (seen >= rank) return std::min(UpperBound(i), max_);
  }
  return max_;
}

}  // namespace kvring
