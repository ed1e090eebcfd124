#include "deploy/cli/svg_chart.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/cli/markup.h"

namespace kvring::cli {
namespace {

constexpr const char* kColours[] = {"#1668c7", "#d9572b", "#2a9d5c", "#8b5fbf", "#c79a16",
                                    "#c7168f", "#17a2b8", "#6b7280", "#7c4a1e", "#4b6a00"};
constexpr double kWidth = 820;
constexpr double kLeft = 170;
constexpr double kRight = 150;
constexpr double kPlot = kWidth - kLeft - kRight;
constexpr int kTicks = 5;

const char* Colour(size_t i) { return kColours[i % std::size(kColours)]; }

std::string Open(double height) {
  return absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n",
      kWidth, height);
}

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return SvgText(x, y, anchor, text, "#333");
}

std::string Box(double x, double y, double width, double height, const std::string& colour) {
  return absl::StrFormat("<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"/>\n", x, y,
                         width, height, colour);
}

// A round number at or above x: 1, 2 or 5 times a power of ten.
double RoundUp(double x) {
  if (!(x > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(x)));
  for (const double step : {1.0, 2.0, 5.0}) {
    if (x <= step * power) return step * power;
  }
  return 10 * power;
}

struct Axis {
  double from;
  double to;
  bool log;
  double Place(double x) const {
    return log ? std::log(x / from) / std::log(to / from) : (x - from) / (to - from);
  }
  double At(double share) const {
    return log ? from * std::pow(to / from, share) : from + share * (to - from);
  }
};

Axis AxisOf(const std::vector<Series>& series, bool log) {
  double from = INFINITY, to = -INFINITY;
  for (const Series& s : series) {
    for (const auto& [x, y] : s.points) from = std::min(from, x), to = std::max(to, x);
  }
  if (!(from < to)) return {log ? 0.1 : 0, 1, log};
  return {log ? from : std::min(from, 0.0), to, log};
}

}  // namespace

std::string LineChart(const std::string& x_label, const std::string& y_label,
                      const std::vector<Series>& series, bool log_x) {
  constexpr double kTop = 20, kHeight = 220;
  const Axis axis = AxisOf(series, log_x);
  double most = 0;
  for (const Series& s : series) {
    for (const auto& point : s.points) most = std::max(most, point.second);
  }
  const double top = RoundUp(most);
  std::string svg = Open(kTop + kHeight + 50);
  for (int i = 0; i <= kTicks; ++i) {
    const double share = static_cast<double>(i) / kTicks, y = kTop + kHeight * (1 - share);
    absl::StrAppend(
        &svg, SvgLine(kLeft, y, kLeft + kPlot, y, "#ddd"),
        Text(kLeft - 8, y + 4, "end", absl::StrFormat("%.4g", top * share)),
        Text(kLeft + kPlot * share, kTop + kHeight + 18, "middle", absl::StrFormat("%.4g", axis.At(share))));
  }
  absl::StrAppend(&svg, Text(kLeft + kPlot / 2, kTop + kHeight + 38, "middle", x_label),
                  Text(kLeft, kTop - 7, "start", y_label));
  for (size_t i = 0; i < series.size(); ++i) {
    absl::StrAppend(&svg, "<polyline fill=\"none\" stroke-width=\"1.8\" stroke=\"", Colour(i),
                    "\" points=\"");
    for (const auto& [x, y] : series[i].points)
      absl::StrAppendFormat(&svg, "%.1f,%.1f ", kLeft + kPlot * axis.Place(x),
                            kTop + kHeight * (1 - y / top));
    const double at = kTop + 12 + 18 * static_cast<double>(i);
    absl::StrAppend(&svg, "\"/>\n", Box(kLeft + kPlot + 10, at - 8, 12, 8, Colour(i)),
                    Text(kLeft + kPlot + 27, at, "start", series[i].name));
  }
  return svg + "</svg>\n";
}

std::string BarChart(const std::string& x_label, const std::vector<std::string>& part_names,
                     const std::vector<Bar>& bars, const std::vector<std::pair<std::string, double>>& marks) {
  constexpr double kTop = 34, kRow = 26;
  double most = 0;
  for (const Bar& bar : bars) {
    double sum = 0;
    for (const double part : bar.parts) sum += part;
    most = std::max(most, sum);
  }
  for (const auto& mark : marks) most = std::max(most, mark.second);
  const double top = RoundUp(most), bottom = kTop + kRow * static_cast<double>(bars.size());
  std::string svg = Open(bottom + 46);
  for (int i = 0; i <= kTicks; ++i) {
    const double share = static_cast<double>(i) / kTicks, x = kLeft + kPlot * share;
    absl::StrAppend(&svg, SvgLine(x, kTop, x, bottom, "#ddd"),
                    Text(x, bottom + 16, "middle", absl::StrFormat("%.4g", top * share)));
  }
  for (size_t row = 0; row < bars.size(); ++row) {
    const double y = kTop + kRow * static_cast<double>(row) + 4;
    double x = kLeft;
    for (size_t i = 0; i < bars[row].parts.size(); ++i) {
      const double width = kPlot * bars[row].parts[i] / top;
      absl::StrAppend(&svg, Box(x, y, width, kRow - 8, Colour(i)));
      x += width;
    }
    absl::StrAppend(&svg, Text(kLeft - 8, y + 13, "end", bars[row].name),
                    Text(x + 6, y + 13, "start", bars[row].text));
  }
  for (const auto& [name, value] : marks) {
    const double x = kLeft + kPlot * value / top;
    absl::StrAppend(&svg, SvgLine(x, kTop - 4, x, bottom, "#111"), Text(x, kTop - 8, "middle", name));
  }
  absl::StrAppend(&svg, Text(kLeft + kPlot / 2, bottom + 36, "middle", x_label));
  for (size_t i = 0; part_names.size() > 1 && i < part_names.size(); ++i) {
    const double at = kTop + 12 + 18 * static_cast<double>(i);
    absl::StrAppend(&svg, Box(kLeft + kPlot + 10, at - 8, 12, 8, Colour(i)),
                    Text(kLeft + kPlot + 27, at, "start", part_names[i]));
  }
  return svg + "</svg>\n";
}

std::string StripChart(const std::vector<std::vector<double>>& rows, double most, double seconds) {
  constexpr double kTop = 6;
  const double row_height = rows.size() > 40 ? 240.0 / static_cast<double>(rows.size()) : 14;
  const double bottom = kTop + row_height * static_cast<double>(rows.size());
  std::string svg = Open(bottom + 24);
  for (size_t row = 0; row < rows.size(); ++row) {
    const double y = kTop + row_height * static_cast<double>(row);
    if (rows.size() <= 40)
      absl::StrAppend(&svg, Text(kLeft - 8, y + 11, "end", absl::StrCat("replica ", row)));
    const double width = kPlot / static_cast<double>(rows[row].size());
    for (size_t i = 0; i < rows[row].size(); ++i) {
      const int shade = 255 - static_cast<int>(std::min(rows[row][i] / most, 1.0) * 215);
      absl::StrAppend(&svg, Box(kLeft + width * static_cast<double>(i), y, width + 0.3, row_height - 0.5,
                                absl::StrFormat("#%02x%02xff", shade, shade)));
    }
  }
  absl::StrAppend(&svg, Text(kLeft, bottom + 16, "start", "0 s"),
                  Text(kLeft + kPlot, bottom + 16, "end", absl::StrFormat("%.0f s", seconds)),
                  Text(kLeft + kPlot + 8, kTop + 12, "start", absl::StrFormat("darkest: %.0f", most)));
  return svg + "</svg>\n";
}

}  // namespace kvring::cli
