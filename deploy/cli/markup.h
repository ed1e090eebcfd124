// What the pages and plots of several commands are written with: text in HTML and SVG, and SVG's lines and
// words. Pure.
#pragma once

#include <string>
#include <string_view>

namespace kvring::cli {

/// Text for HTML and SVG.
std::string EscapeMarkup(std::string_view text);

/// anchor: "start", "middle" or "end". The text is escaped.
std::string SvgText(double x, double y, const char* anchor, std::string_view text, const char* colour);
std::string SvgLine(double x1, double y1, double x2, double y2, const char* colour);

}  // namespace kvring::cli
