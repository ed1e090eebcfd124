#include "sim/workload.h"

#include <string>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/absl_view.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace kvring::sim {
namespace {

constexpr int64_t kMostOfAnything = 10'000'000;

enum class Content : uint64_t { kSystem = 1, kPersona, kScenario, kMessage, kPrefix, kOwn };

// A content of its own for every kind and number.
PromptSpan Say(Content kind, int64_t number, int64_t tokens) {
  return {MixBits(static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(number)),
          static_cast<int32_t>(tokens)};
}

struct Field {
  std::string_view name;
  std::variant<int64_t*, double*> value;
  int64_t least = 0;
};

std::vector<Field> FieldsOf(ChatWorkload& w) {
  return {{"sessions", &w.sessions, 1}, {"turns", &w.turns, 1},   {"group", &w.group, 1},
          {"system", &w.system},        {"persona", &w.persona},  {"scenario", &w.scenario},
          {"message", &w.message, 1},   {"answer", &w.answer, 1}, {"rate", &w.rate},
          {"pause", &w.pause}};
}

std::vector<Field> FieldsOf(PrefixWorkload& w) {
  return {{"requests", &w.requests, 1}, {"groups", &w.groups, 1}, {"prefix", &w.prefix},
          {"own", &w.own, 1},           {"answer", &w.answer, 1}, {"rate", &w.rate}};
}

absl::Status SetField(const Field& field, absl::string_view text) {
  const auto wrong = [&](const char* what) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload field ", Absl(field.name), "=", text, ": ", what));
  };
  if (auto* const* whole = std::get_if<int64_t*>(&field.value)) {
    if (!absl::SimpleAtoi(text, *whole) || **whole < field.least || **whole > kMostOfAnything)
      return wrong("a whole number out of range");
    return absl::OkStatus();
  }
  double* const number = std::get<double*>(field.value);
  if (!absl::SimpleAtod(text, number) || !(*number > 0) || *number > 1e9) return wrong("a number above 0");
  return absl::OkStatus();
}

absl::Status SetFields(absl::string_view text, const std::vector<Field>& fields) {
  if (text.empty()) return absl::OkStatus();
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    const Field* found = nullptr;
    for (const Field& field : fields) {
      if (Absl(field.name) == pair.first) found = &field;
    }
    if (found == nullptr)
      return absl::InvalidArgumentError(absl::StrCat("workload field ", pair.first, " is unknown"));
    KVRING_RETURN_IF_ERROR(SetField(*found, pair.second));
  }
  return absl::OkStatus();
}

void AddConversation(const ChatWorkload& w, int64_t session, Duration begin, Random& random, Trace& trace) {
  for (int64_t turn = 0; turn < w.turns; ++turn) {
    const auto before = static_cast<int64_t>(trace.requests.size()) - 1;
    TraceRequest& request = trace.AddRequest();
    request.session = static_cast<uint64_t>(session) + 1;
    request.output_tokens = static_cast<int32_t>(w.answer);
    request.arrival = turn == 0 ? begin : FromSeconds(random.Exponential(w.pause));
    request.after = turn == 0 ? -1 : before;
    request.continues = turn > 0;
    if (turn == 0) {
      trace.AddSpan(Say(Content::kSystem, 0, w.system));
      trace.AddSpan(Say(Content::kPersona, session / w.group, w.persona));
      trace.AddSpan(Say(Content::kScenario, session, w.scenario));
    }
    trace.AddSpan(Say(Content::kMessage, session * w.turns + turn, w.message));
  }
}

}  // namespace

Trace MakeChat(const ChatWorkload& workload, uint64_t seed) {
  Random random(seed);
  Trace trace{.name = "chat"};
  Duration at{};
  for (int64_t session = 0; session < workload.sessions; ++session) {
    AddConversation(workload, session, at, random, trace);
    at += FromSeconds(random.Exponential(1 / workload.rate));
  }
  return trace;
}

Trace MakePrefixes(const PrefixWorkload& workload, uint64_t seed) {
  Random random(seed);
  Trace trace{.name = "prefixes"};
  Duration at{};
  for (int64_t i = 0; i < workload.requests; ++i) {
    TraceRequest& request = trace.AddRequest();
    request.arrival = at;
    request.output_tokens = static_cast<int32_t>(workload.answer);
    const auto group = static_cast<int64_t>(random.Below(static_cast<uint64_t>(workload.groups)));
    trace.AddSpan(Say(Content::kPrefix, group, workload.prefix));
    trace.AddSpan(Say(Content::kOwn, i, workload.own));
    at += FromSeconds(random.Exponential(1 / workload.rate));
  }
  return trace;
}

absl::StatusOr<Trace> MakeWorkload(std::string_view description, uint64_t seed) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(Absl(description), absl::MaxSplits(':', 1));
  if (pair.first == "chat") {
    ChatWorkload workload;
    KVRING_RETURN_IF_ERROR(SetFields(pair.second, FieldsOf(workload)));
    return MakeChat(workload, seed);
  }
  if (pair.first == "prefixes") {
    PrefixWorkload workload;
    KVRING_RETURN_IF_ERROR(SetFields(pair.second, FieldsOf(workload)));
    return MakePrefixes(workload, seed);
  }
  return absl::InvalidArgumentError(absl::StrCat("workload ", pair.first, " is unknown (chat, prefixes)"));
}

}  // namespace kvring::sim
