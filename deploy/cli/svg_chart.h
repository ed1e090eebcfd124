// Charts as SVG text for self-contained pages: lines over an axis, stacked horizontal bars, and a strip of
// shades over time. Colours are told apart in their order, light or dark text theme alike. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kvring::cli {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  // x ascending
};
/// Lines with a legend. `log_x`: x on a logarithmic axis, all x above 0. y runs from 0.
std::string LineChart(const std::string& x_label, const std::string& y_label,
                      const std::vector<Series>& series, bool log_x);

struct Bar {
  std::string name;
  std::vector<double> parts;  // stacked
  std::string text;           // behind it
};
/// `marks`: named vertical lines across all bars.
std::string BarChart(const std::string& x_label, const std::vector<std::string>& part_names,
                     const std::vector<Bar>& bars, const std::vector<std::pair<std::string, double>>& marks);

/// One row per member, a cell per moment, the darker the more; `most`: what is darkest.
std::string StripChart(const std::vector<std::vector<double>>& rows, double most, double seconds);

}  // namespace kvring::cli
