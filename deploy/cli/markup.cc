#include "deploy/cli/markup.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "common/absl_view.h"

namespace kvring::cli {

std::string EscapeMarkup(std::string_view text) {
  return absl::StrReplaceAll(Absl(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string SvgText(double x, double y, const char* anchor, std::string_view text, const char* colour) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">%s</text>\n", x, y,
                         anchor, colour, EscapeMarkup(text));
}

std::string SvgLine(double x1, double y1, double x2, double y2, const char* colour) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1,
                         x2, y2, colour);
}

}  // namespace kvring::cli
