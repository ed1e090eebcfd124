#include "sim/interval.h"

#include <cmath>
#include <cstddef>
#include <iterator>

namespace kvring::sim {
namespace {

// The 0.975 quantile of Student's t with so many degrees of freedom, from 1 on; beyond, that of the normal
// distribution with the first term of its expansion (Abramowitz and Stegun 26.7.5).
double Quantile(size_t freedom) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                               2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
  if (freedom <= std::size(kTable)) return kTable[freedom - 1];
  constexpr double kNormal = 1.95996;
  return kNormal + (kNormal * kNormal * kNormal + kNormal) / (4 * static_cast<double>(freedom));
}

}  // namespace

Interval ConfidenceInterval(std::span<const double> figures) {
  const auto n = static_cast<double>(figures.size());
  double sum = 0, squares = 0;
  for (const double figure : figures) sum += figure;
  for (const double figure : figures) squares += (figure - sum / n) * (figure - sum / n);
  if (figures.size() < 2) return {.mean = sum};
  return {.mean = sum / n, .half_width = Quantile(figures.size() - 1) * std::sqrt(squares / (n - 1) / n)};
}

}  // namespace kvring::sim
