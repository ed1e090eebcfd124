// Interval: the mean of a few independent figures with its 95 % confidence interval, by Student's t. Pure.
#pragma once

#include <span>

namespace kvring::sim {

struct Interval {
  double mean = 0;
  double half_width = 0;  // 0 for a single figure: nothing is known of its spread
};
/// `figures` is not empty.
Interval ConfidenceInterval(std::span<const double> figures);

}  // namespace kvring::sim
