#include "deploy/cli/size_plot.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "deploy/cli/command.h"
#include "deploy/cli/markup.h"

namespace kvring::cli {
namespace {

constexpr double kLeft = 90;
constexpr double kTop = 30;
constexpr double kWidth = 560;
constexpr double kHeight = 300;
constexpr int kTicks = 4;

// Where (tokens, bytes) lies on the page.
struct Scale {
  double tokens;
  double bytes;

  double x(double at) const { return kLeft + at / tokens * kWidth; }
  double y(double at) const { return kTop + kHeight - at / bytes * kHeight; }
};

std::string Text(double x, double y, const char* anchor, const std::string& text) {
  return SvgText(x, y, anchor, text, "#000");
}

std::string Axes(const Scale& scale) {
  std::string out;
  for (int i = 0; i <= kTicks; ++i) {
    const double tokens = scale.tokens * i / kTicks;
    const double bytes = scale.bytes * i / kTicks;
    absl::StrAppend(&out, SvgLine(kLeft, scale.y(bytes), kLeft + kWidth, scale.y(bytes), "#ddd"),
                    Text(kLeft - 8, scale.y(bytes) + 4, "end", FormatBytes(static_cast<int64_t>(bytes))),
                    Text(scale.x(tokens), kTop + kHeight + 18, "middle", absl::StrFormat("%.0f", tokens)));
  }
  return absl::StrCat(out,
                      Text(kLeft + kWidth / 2, kTop + kHeight + 38, "middle", "tokens of a conversation"));
}

}  // namespace

std::string SizePlot(const replica::KvShape& shape, int64_t tokens, int64_t batch, int64_t room_bytes) {
  const int64_t most = KvBytes(shape, tokens, batch);
  const Scale scale{static_cast<double>(tokens), static_cast<double>(most) * 1.1};
  const int64_t bend = shape.window > 0 ? std::min(shape.window, tokens) : tokens;
  const auto last = static_cast<double>(most);
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 680 380\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n"
      "<rect width=\"680\" height=\"380\" fill=\"#fff\"/>\n";
  absl::StrAppend(&out, Axes(scale));
  if (room_bytes > 0 && static_cast<double>(room_bytes) <= scale.bytes) {
    const double y = scale.y(static_cast<double>(room_bytes));
    absl::StrAppend(&out, SvgLine(kLeft, y, kLeft + kWidth, y, "#c33"),
                    Text(kLeft + kWidth, y - 4, "end", "room beside the weights"));
  }
  absl::StrAppendFormat(&out,
                        "<polyline fill=\"none\" stroke=\"#26c\" stroke-width=\"2\" points=\"%.1f,%.1f "
                        "%.1f,%.1f %.1f,%.1f\"/>\n",
                        scale.x(0), scale.y(0), scale.x(static_cast<double>(bend)), scale.y(last),
                        scale.x(scale.tokens), scale.y(last));
  const std::string title =
      absl::StrFormat("%d layers, %d KV heads, head dim %d, batch %d: %s at %d tokens", shape.layers,
                      shape.kv_heads, shape.head_dim, batch, FormatBytes(most), tokens);
  return absl::StrCat(out, Text(kLeft, 18, "start", title), "</svg>\n");
}

}  // namespace kvring::cli
