// Workloads by name and fields.
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/absl_view.h"
#include "common/status_macros.h"
#include "sim/workload.h"

namespace kvring::sim {
namespace {

constexpr int64_t kMostOfAnything = 10'000'000;
constexpr double kMostOfAnyNumber = 1e9;

struct Field {
  std::string_view name;
  std::variant<int64_t*, double*> value;
  double least = 0;  // of a number: this or more
};

void AddFields(Arrivals& a, std::vector<Field>& fields) {
  constexpr double kLeastRate = 1e-6;
  for (const Field& field :
       {Field{"rate", &a.rate, kLeastRate}, Field{"swing", &a.swing}, Field{"period", &a.period, kLeastRate},
        Field{"clients", &a.clients}, Field{"pause", &a.pause}})
    fields.push_back(field);
}

std::vector<Field> FieldsOf(ChatWorkload& w) {
  return {{"sessions", &w.sessions, 1}, {"turns", &w.turns, 1},  {"group", &w.group, 1},
          {"system", &w.system},        {"persona", &w.persona}, {"scenario", &w.scenario},
          {"message", &w.message, 1},   {"answer", &w.answer, 1}};
}

std::vector<Field> FieldsOf(PrefixWorkload& w) {
  return {{"requests", &w.requests, 1}, {"groups", &w.groups, 1}, {"prefix", &w.prefix},
          {"own", &w.own, 1},           {"answer", &w.answer, 1}, {"zipf", &w.zipf}};
}

std::vector<Field> FieldsOf(RagWorkload& w) {
  return {{"requests", &w.requests, 1}, {"documents", &w.documents, 1},
          {"picks", &w.picks},          {"system", &w.system},
          {"document", &w.document, 1}, {"question", &w.question, 1},
          {"answer", &w.answer, 1},     {"zipf", &w.zipf}};
}

absl::Status SetField(const Field& field, absl::string_view text) {
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(
        absl::StrCat("workload field ", Absl(field.name), "=", text, " must be ", what));
  };
  if (auto* const* whole = std::get_if<int64_t*>(&field.value)) {
    const auto least = static_cast<int64_t>(field.least);
    if (!absl::SimpleAtoi(text, *whole) || **whole < least || **whole > kMostOfAnything)
      return wrong(absl::StrCat("a whole number from ", least, " to ", kMostOfAnything));
    return absl::OkStatus();
  }
  double* const number = std::get<double*>(field.value);
  if (!absl::SimpleAtod(text, number) || !(*number >= field.least) || *number > kMostOfAnyNumber)
    return wrong(absl::StrCat("a number from ", field.least, " to ", kMostOfAnyNumber));
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
    if (found == nullptr) {
      const auto name = [](std::string* out, const Field& field) { absl::StrAppend(out, Absl(field.name)); };
      return absl::InvalidArgumentError(absl::StrCat(
          "workload field ", pair.first, " is unknown; known: ", absl::StrJoin(fields, ", ", name)));
    }
    KVRING_RETURN_IF_ERROR(SetField(*found, pair.second));
  }
  return absl::OkStatus();
}

template <class Workload>
absl::StatusOr<Trace> Make(Workload workload, Trace (*make)(const Workload&, uint64_t),
                           absl::string_view fields, uint64_t seed) {
  std::vector<Field> known = FieldsOf(workload);
  AddFields(workload.arrivals, known);
  KVRING_RETURN_IF_ERROR(SetFields(fields, known));
  if (workload.arrivals.swing > 1)
    return absl::InvalidArgumentError("workload field swing must be at most 1");
  return make(workload, seed);
}

constexpr ChatWorkload kAgents{.sessions = 50,
                               .turns = 30,
                               .group = 1000,
                               .system = 4000,
                               .persona = 0,
                               .scenario = 500,
                               .message = 800,
                               .answer = 150,
                               .arrivals = {.rate = 1, .pause = 2}};
constexpr ChatWorkload kBackToBack{.arrivals = {.rate = 5, .pause = 0}};
constexpr PrefixWorkload kZipf{.groups = 1000, .zipf = 1};

}  // namespace

std::vector<std::string_view> WorkloadNames() {
  return {"chat", "roleplay", "agents", "back-to-back", "prefixes", "zipf", "rag"};
}

absl::StatusOr<Trace> MakeWorkload(std::string_view description, uint64_t seed) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(Absl(description), absl::MaxSplits(':', 1));
  const auto& [name, fields] = pair;
  absl::StatusOr<Trace> trace = absl::InvalidArgumentError(absl::StrCat(
      "workload ", name, " is unknown; known: ",
      absl::StrJoin(WorkloadNames(), ", ",
                    [](std::string* out, std::string_view known) { absl::StrAppend(out, Absl(known)); })));
  if (name == "chat" || name == "roleplay") trace = Make(ChatWorkload{}, MakeChat, fields, seed);
  if (name == "agents") trace = Make(kAgents, MakeChat, fields, seed);
  if (name == "back-to-back") trace = Make(kBackToBack, MakeChat, fields, seed);
  if (name == "prefixes") trace = Make(PrefixWorkload{}, MakePrefixes, fields, seed);
  if (name == "zipf") trace = Make(kZipf, MakePrefixes, fields, seed);
  if (name == "rag") trace = Make(RagWorkload{}, MakeRag, fields, seed);
  if (trace.ok()) trace->name = std::string(description);
  return trace;
}

}  // namespace kvring::sim
