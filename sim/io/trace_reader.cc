#include "sim/io/trace_reader.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/absl_view.h"
#include "common/block_hash.h"
#include "common/random.h"
#include "common/status_macros.h"
#include "sim/io/text_lines.h"

namespace kvring::sim {
namespace {

namespace dom = simdjson::dom;

constexpr int32_t kMooncakeBlockTokens = 512;
constexpr int64_t kMaxTokens = int64_t{1} << 26;  // of one request
// Contents that no hash id has: ids go through MixBits, these come from another stream.
constexpr uint64_t kUniqueStream = 0x756e697175650000;

class Reader {
 public:
  explicit Reader(TextLines lines) : lines_(std::move(lines)) { trace_.block_tokens = kMooncakeBlockTokens; }

  bool SetUnit(std::string_view unit) {
    unit_ns_ = unit == "s" ? 1e9 : unit == "ms" ? 1e6 : unit == "us" ? 1e3 : 0;
    return unit_ns_ > 0;
  }

  absl::StatusOr<Trace> Read(int64_t limit) {
    trace_.name = lines_.path();
    std::string_view line;
    bool csv = false;
    while (limit == 0 || std::ssize(trace_.requests) < limit) {
      KVRING_ASSIGN_OR_RETURN(const bool more, lines_.Next(line));
      if (!more) break;
      if (lines_.number() == 1 && line.starts_with("TIMESTAMP")) {
        csv = true;
        KVRING_RETURN_IF_ERROR(CheckCsvHeader(line));
        continue;
      }
      if (line.empty()) continue;
      KVRING_RETURN_IF_ERROR(csv ? ReadCsv(line) : ReadJson(line));
    }
    if (trace_.requests.empty())
      return absl::InvalidArgumentError(absl::StrCat(trace_.name, ": no requests"));
    return std::move(trace_);
  }

 private:
  absl::Status Wrong(std::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(lines_.path(), ":", lines_.number(), ": ", Absl(what)));
  }
  absl::Status WrongField(std::string_view field, std::string_view what) const {
    return Wrong(absl::StrCat(Absl(field), " ", Absl(what)));
  }

  absl::Status ReadJson(std::string_view line) {
    dom::element root;
    if (parser_.parse(line.data(), line.size()).get(root) != simdjson::SUCCESS || !root.is_object())
      return Wrong("not a JSON object");
    dom::object header;
    if (root["kvring_trace"].get(header) == simdjson::SUCCESS) return ReadHeader(header);
    int64_t input = 0, output = 0;
    KVRING_RETURN_IF_ERROR(Count(root, "input_length", 1, input));
    KVRING_RETURN_IF_ERROR(Count(root, "output_length", 0, output));
    KVRING_RETURN_IF_ERROR(ReadBeginning(root, output));
    KVRING_RETURN_IF_ERROR(ReadSession(root));
    KVRING_RETURN_IF_ERROR(ReadIdentity(root));
    return ReadPrompt(root, static_cast<int32_t>(input));
  }

  absl::Status ReadBeginning(dom::element root, int64_t output) {
    dom::element parent;
    if (root["parent"].get(parent) != simdjson::SUCCESS) {
      Duration timestamp{};
      KVRING_RETURN_IF_ERROR(Time(root, "timestamp", timestamp));
      return Begin(timestamp, output);
    }
    int64_t after = 0;
    if (parent.get(after) != simdjson::SUCCESS || after < 0 || after >= std::ssize(trace_.requests))
      return WrongField("parent", "must be the number of an earlier request, from 0");
    Duration delay{};
    dom::element field;
    if (root["delay"].get(field) == simdjson::SUCCESS) KVRING_RETURN_IF_ERROR(Time(root, "delay", delay));
    TraceRequest& request = trace_.AddRequest();
    request.after = after;
    request.arrival = delay;
    request.output_tokens = static_cast<int32_t>(output);
    return absl::OkStatus();
  }

  absl::Status Time(dom::element root, std::string_view field, Duration& time) const {
    double value = 0;
    if (root[field].get(value) != simdjson::SUCCESS || !(value >= 0) || value * unit_ns_ > 9e18)
      return WrongField(field, "must be a number, 0 or more");
    time = Duration(static_cast<int64_t>(value * unit_ns_));
    return absl::OkStatus();
  }

  // Of model and tenant: caches are apart where one differs.
  absl::Status ReadIdentity(dom::element root) {
    salt_ = 0;
    for (const std::string_view field : {std::string_view("model"), std::string_view("tenant")}) {
      dom::element value;
      std::string_view name;
      if (root[field].get(value) != simdjson::SUCCESS) continue;
      if (value.get(name) != simdjson::SUCCESS) return WrongField(field, "must be a string");
      salt_ = MixBits(salt_ ^ HashName(name) ^ HashName(field));
    }
    return absl::OkStatus();
  }

  absl::Status ReadHeader(dom::object header) {
    if (lines_.number() != 1) return WrongField("kvring_trace", "must be the first line");
    for (const auto& [key, value] : header) {
      std::string_view unit;
      int64_t block = 0;
      if (key == "time_unit" && value.get(unit) == simdjson::SUCCESS && SetUnit(unit)) continue;
      if (key == "block_tokens" && value.get(block) == simdjson::SUCCESS && block > 0 && block <= 1 << 20) {
        trace_.block_tokens = static_cast<int32_t>(block);
        continue;
      }
      return WrongField(absl::StrCat("kvring_trace.", Absl(key)), "is unknown or out of range");
    }
    return absl::OkStatus();
  }

  absl::Status Count(dom::element root, std::string_view field, int64_t least, int64_t& value) const {
    if (root[field].get(value) != simdjson::SUCCESS || value < least || value > kMaxTokens)
      return WrongField(field, absl::StrCat("must be a whole number from ", least, " to ", kMaxTokens));
    return absl::OkStatus();
  }

  absl::Status Begin(Duration arrival, int64_t output) {
    if (arrival < last_timestamp_) return WrongField("timestamp", "is before that of a line above");
    last_timestamp_ = arrival;
    TraceRequest& request = trace_.AddRequest();
    request.arrival = arrival;
    request.output_tokens = static_cast<int32_t>(output);
    return absl::OkStatus();
  }

  absl::Status ReadSession(dom::element root) {
    dom::element session;
    if (root["session_id"].get(session) != simdjson::SUCCESS) return absl::OkStatus();
    std::string_view name;
    if (session.get(name) != simdjson::SUCCESS) return WrongField("session_id", "must be a string");
    trace_.requests.back().session = HashName(name) | 1;
    return absl::OkStatus();
  }

  absl::Status ReadPrompt(dom::element root, int32_t input) {
    dom::element field;
    if (root["hash_ids"].get(field) != simdjson::SUCCESS) return AddUnique(input);
    dom::array ids;
    if (field.get(ids) != simdjson::SUCCESS)
      return WrongField("hash_ids", "must be an array of whole numbers");
    const int32_t block = trace_.block_tokens;
    const auto blocks = static_cast<int64_t>(ids.size());
    // All of them, or all but the tail, or one for an empty tail besides.
    if (blocks != input / block && blocks != input / block + 1)
      return WrongField("hash_ids", absl::StrCat("has ", blocks, " ids, but input_length ", input, " is ",
                                                 (input + block - 1) / block, " blocks of ", block));
    int32_t left = input;
    std::optional<int64_t> parent;
    for (dom::element element : ids) {
      int64_t id = 0;
      if (element.get(id) != simdjson::SUCCESS || id < 0)
        return WrongField("hash_ids", "must hold whole numbers, 0 or more");
      KVRING_RETURN_IF_ERROR(CheckParent(id, parent));
      const auto content = static_cast<uint64_t>(id);
      if (left > 0) trace_.AddSpan({salt_ == 0 ? content : MixBits(content ^ salt_), std::min(block, left)});
      left -= std::min(block, left);
      parent = id;
    }
    return AddUnique(left);
  }

  // Prompts are equal up to a block that they share: it follows the same one everywhere.
  absl::Status CheckParent(int64_t id, std::optional<int64_t> parent) {
    const auto [it, first] = parents_.try_emplace(id, Parent{parent, lines_.number()});
    if (first || it->second.id == parent) return absl::OkStatus();
    const auto name = [](std::optional<int64_t> p) { return p ? absl::StrCat("id ", *p) : "nothing"; };
    return WrongField("hash_ids", absl::StrCat("id ", id, " follows ", name(parent), " here and ",
                                               name(it->second.id), " in line ", it->second.line));
  }

  absl::Status AddUnique(int32_t tokens) {
    if (tokens > 0) trace_.AddSpan({MixBits(kUniqueStream + trace_.requests.size()), tokens});
    return absl::OkStatus();
  }

  absl::Status CheckCsvHeader(std::string_view line) const {
    if (line == "TIMESTAMP,ContextTokens,GeneratedTokens") return absl::OkStatus();
    return Wrong("the header must be TIMESTAMP,ContextTokens,GeneratedTokens");
  }

  absl::Status ReadCsv(std::string_view line) {
    const std::vector<absl::string_view> fields = absl::StrSplit(Absl(line), ',');
    if (fields.size() != 3) return Wrong("a line has 3 fields");
    absl::Time at;
    std::string error;
    if (!absl::ParseTime("%Y-%m-%d %H:%M:%E*S", fields[0], absl::UTCTimeZone(), &at, &error))
      return WrongField("TIMESTAMP", error);
    if (trace_.requests.empty()) begin_ = at;
    int64_t input = 0, output = 0;
    if (!absl::SimpleAtoi(fields[1], &input) || input < 1 || input > kMaxTokens)
      return WrongField("ContextTokens", "must be a whole number, 1 or more");
    if (!absl::SimpleAtoi(fields[2], &output) || output < 0 || output > kMaxTokens)
      return WrongField("GeneratedTokens", "must be a whole number, 0 or more");
    KVRING_RETURN_IF_ERROR(Begin(Duration(absl::ToInt64Nanoseconds(at - begin_)), output));
    return AddUnique(static_cast<int32_t>(input));
  }

  struct Parent {
    std::optional<int64_t> id;
    int64_t line;
  };

  TextLines lines_;
  dom::parser parser_;
  Trace trace_;
  double unit_ns_ = 1e6;
  absl::Time begin_;
  Duration last_timestamp_{};
  uint64_t salt_ = 0;                             // of the line under way
  absl::flat_hash_map<int64_t, Parent> parents_;  // look-up only
};

}  // namespace

absl::StatusOr<Trace> ReadTrace(const std::string& path, const TraceReadOptions& options) {
  KVRING_ASSIGN_OR_RETURN(TextLines lines, TextLines::Open(path));
  Reader reader(std::move(lines));
  if (!reader.SetUnit(options.time_unit))
    return absl::InvalidArgumentError(absl::StrCat("time unit ", options.time_unit, " is not s, ms or us"));
  return reader.Read(options.limit);
}

}  // namespace kvring::sim
