#include "deploy/cli/command.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace kvring::cli {

int Fail(const std::string& message) {
  std::fprintf(stderr, "kvring: %s\n", message.c_str());
  return 1;
}

int Fail(const absl::Status& status) { return Fail(std::string(status.message())); }

std::string DefaultModelPath() {
  if (const char* path = std::getenv("KVRING_MODEL")) return path;
  const char* home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf");
}

absl::Status ParseBytes(const std::string& text, int64_t& bytes) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  std::string unit(rest, end);
  if (unit.ends_with("B")) unit.pop_back();
  const bool binary = unit.ends_with("i");
  if (binary) unit.pop_back();
  double scale = 1;
  if (!unit.empty()) {
    const size_t power = std::string("kMGT").find(unit == "K" ? "k" : unit);
    if (unit.size() != 1 || power == std::string::npos)
      return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no size (like 64GiB)"));
    for (size_t i = 0; i <= power; ++i) scale *= binary ? 1024 : 1000;
  }
  if (error != std::errc() || !(number >= 0) || number * scale > 0x1p62) {
    return absl::InvalidArgumentError(absl::StrCat("'", text, "' is no size (like 64GiB)"));
  }
  bytes = static_cast<int64_t>(number * scale);
  return absl::OkStatus();
}

std::string FormatBytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrCat(bytes, " B") : absl::StrFormat("%.2f %s", value, kUnits[unit]);
}

}  // namespace kvring::cli
