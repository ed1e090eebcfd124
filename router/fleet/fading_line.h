// FadingLine: least squares of y over x where old samples fade, each new one weighing all before it by
// `keep`. Pure; not thread-safe.
#pragma once

namespace kvring::router {

struct FadingLine {
  double keep = 0.999;  // memory of about 1 / (1 - keep) samples
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;

  void Observe(double at, double value) {
    n = n * keep + 1;
    x = x * keep + at;
    y = y * keep + value;
    xx = xx * keep + at * at;
    xy = xy * keep + at * value;
  }
  /// The slope, drawn towards `usual` as by samples of that slope with `spread` = their count · variance of
  /// x.
  double Slope(double usual, double spread) const {
    const double variance = n > 0 ? xx - x * x / n : 0, covariance = n > 0 ? xy - x * y / n : 0;
    return (covariance + spread * usual) / (variance + spread);
  }
};

}  // namespace kvring::router
