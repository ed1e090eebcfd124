#include "deploy/cli/audit_log.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/json_normal.h"
#include "common/status_macros.h"
#include "sim/io/text_lines.h"

namespace kvring::cli {
namespace {

namespace fs = std::filesystem;

bool IsLogName(std::string name) {
  for (const std::string_view packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.resize(name.size() - packed.size());
  constexpr std::array<std::string_view, 6> kEndings = {".jsonl", ".ndjson", ".json", ".har", ".log", ".txt"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return name.ends_with(ending); });
}

// Cuts records out of text that comes in lines: objects at the depth where records begin. 0: one behind
// another; 1: in an array; 3: log.entries of a HAR.
class RecordCutter {
 public:
  RecordCutter(size_t depth, const RecordSink& sink) : record_depth_(depth), sink_(sink) {}

  void Line(std::string_view line, int64_t number) {
    size_t begin = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      if (in_string_ && line[i] == '\\') {
        ++i;
        continue;
      }
      if (line[i] == '"') in_string_ = !in_string_;
      if (in_string_) continue;
      if (Opens(line[i]) && depth_++ == record_depth_ && line[i] == '{') {
        begin = i;
        line_ = number;
        open_ = true;
      }
      if (!Closes(line[i]) || depth_ == 0 || --depth_ != record_depth_ || !open_) continue;
      record_.append(line.substr(begin, i + 1 - begin));
      sink_(record_, line_);
      record_.clear();
      open_ = false;
    }
    if (open_) record_.append(line.substr(begin)).push_back('\n');
  }

  bool whole() const { return depth_ == 0 && !in_string_; }
  int64_t line() const { return line_; }
  bool too_long() const { return record_.size() > sim::kMaxLineBytes; }

 private:
  static bool Opens(char c) { return c == '{' || c == '['; }
  static bool Closes(char c) { return c == '}' || c == ']'; }

  size_t record_depth_;
  const RecordSink& sink_;
  size_t depth_ = 0;
  bool in_string_ = false;
  bool open_ = false;
  int64_t line_ = 0;
  std::string record_;
};

enum class LogForm { kLines, kRecords, kArray, kHar };

// Told by the first lines that hold something.
LogForm FormOf(std::string_view start) {
  const std::string text = WithoutJsonSpace(start.substr(0, 4096));
  if (text.starts_with("{\"log\":")) return LogForm::kHar;
  if (text.starts_with('[')) return LogForm::kArray;
  const std::string_view first = start.substr(0, start.find('\n'));
  return first == "{" ? LogForm::kRecords : LogForm::kLines;
}

std::string_view Trimmed(std::string_view line) {
  if (line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  const size_t begin = line.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
}

// The first lines, enough to tell the form by.
absl::StatusOr<std::string> Start(const std::string& path) {
  KVRING_ASSIGN_OR_RETURN(sim::TextLines lines, sim::TextLines::Open(path));
  std::string start;
  std::string_view line;
  while (start.size() < 64) {
    KVRING_ASSIGN_OR_RETURN(const bool more, lines.Next(line));
    if (!more) break;
    if (const std::string_view text = Trimmed(line); !text.empty()) start.append(text).push_back('\n');
  }
  return start;
}

absl::Status ReadLines(sim::TextLines& lines, const RecordSink& sink) {
  for (std::string_view line;;) {
    KVRING_ASSIGN_OR_RETURN(const bool more, lines.Next(line));
    if (!more) return absl::OkStatus();
    if (const std::string_view record = Trimmed(line); !record.empty()) sink(record, lines.number());
  }
}

absl::Status CutRecords(sim::TextLines& lines, RecordCutter cutter) {
  for (std::string_view line;;) {
    KVRING_ASSIGN_OR_RETURN(const bool more, lines.Next(line));
    if (!more) break;
    cutter.Line(line, lines.number());
    if (cutter.too_long())
      return absl::ResourceExhaustedError(
          absl::StrCat(lines.path(), ":", cutter.line(), ": the record is too long"));
  }
  if (cutter.whole()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(lines.path(), ":", std::max<int64_t>(cutter.line(), 1),
                                          ": the JSON that begins here has no end"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> LogFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      if (!fs::exists(path, error)) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (auto entry = fs::recursive_directory_iterator(path, error); !error && entry != fs::end(entry);
         entry.increment(error))
      if (entry->is_regular_file(error) && IsLogName(entry->path().filename()))
        found.push_back(entry->path());
    if (error) return absl::NotFoundError(absl::StrCat(path, ": ", error.message()));
    if (found.empty())
      return absl::NotFoundError(absl::StrCat(path, ": no .jsonl, .json, .har, .log or .txt in it"));
    std::ranges::sort(found);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

absl::Status ReadLog(const std::string& path, const RecordSink& sink) {
  KVRING_ASSIGN_OR_RETURN(const std::string start, Start(path));
  KVRING_ASSIGN_OR_RETURN(sim::TextLines lines, sim::TextLines::Open(path));
  switch (FormOf(start)) {
    case LogForm::kLines:
      return ReadLines(lines, sink);
    case LogForm::kRecords:
      return CutRecords(lines, RecordCutter(0, sink));
    case LogForm::kArray:
      return CutRecords(lines, RecordCutter(1, sink));
    case LogForm::kHar:
      return CutRecords(lines, RecordCutter(3, sink));
  }
  return absl::OkStatus();
}

}  // namespace kvring::cli
