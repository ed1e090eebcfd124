#include "sim/workload.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "common/random.h"

namespace kvring::sim {
namespace {

enum class Content : uint64_t {
  kSystem = 1,
  kPersona,
  kScenario,
  kMessage,
  kPrefix,
  kOwn,
  kDocument,
  kQuestion
};

// A content of its own for every kind and number.
PromptSpan Say(Content kind, int64_t number, int64_t tokens) {
  return {MixBits(static_cast<uint64_t>(kind) << 56 | static_cast<uint64_t>(number)),
          static_cast<int32_t>(tokens)};
}

// When the next conversation or single request begins, and whom it waits for in a closed loop.
class Beginnings {
 public:
  Beginnings(const Arrivals& arrivals, Random& random) : arrivals_(arrivals), random_(random) {}

  /// Sets arrival and after of the number-th, which begins at the trace's end. `last`: index of the request
  /// that ends the (number - clients)-th.
  void Begin(int64_t number, int64_t last, TraceRequest& request) {
    const bool waits = arrivals_.clients > 0 && number >= arrivals_.clients;
    request.after = waits ? last : -1;
    request.arrival = waits ? Pause() : at_;
    if (!waits) Advance();
  }
  Duration Pause() { return FromSeconds(random_.Exponential(arrivals_.pause)); }

 private:
  // A Poisson process at the highest rate, thinned to the one of the moment (Lewis and Shedler 1979).
  void Advance() {
    const double most = arrivals_.rate * (1 + arrivals_.swing);
    for (;;) {
      at_ += FromSeconds(random_.Exponential(1 / most));
      if (arrivals_.swing == 0) return;
      const double phase = 2 * std::numbers::pi * ToSeconds(at_) / arrivals_.period;
      if (random_.Uniform() * most < arrivals_.rate * (1 + arrivals_.swing * std::sin(phase))) return;
    }
  }

  const Arrivals& arrivals_;
  Random& random_;
  Duration at_{};
};

// Numbers below n, the k-th in proportion to 1 / (k + 1)^exponent.
class Zipf {
 public:
  Zipf(int64_t n, double exponent) : sums_(static_cast<size_t>(n)) {
    double sum = 0;
    for (size_t k = 0; k < sums_.size(); ++k)
      sums_[k] = sum += std::pow(static_cast<double>(k + 1), -exponent);
  }
  int64_t Draw(Random& random) const {
    const double at = random.Uniform() * sums_.back();
    const auto found = std::ranges::upper_bound(sums_, at) - sums_.begin();
    return std::min<int64_t>(found, std::ssize(sums_) - 1);
  }

 private:
  std::vector<double> sums_;
};

}  // namespace

Trace MakeChat(const ChatWorkload& w, uint64_t seed) {
  Random random(seed);
  Beginnings beginnings(w.arrivals, random);
  Trace trace{.name = "chat"};
  for (int64_t session = 0; session < w.sessions; ++session) {
    for (int64_t turn = 0; turn < w.turns; ++turn) {
      const auto index = std::ssize(trace.requests);
      TraceRequest& request = trace.AddRequest();
      request.session = static_cast<uint64_t>(session) + 1;
      request.output_tokens = static_cast<int32_t>(w.answer);
      request.continues = turn > 0;
      if (turn > 0) {
        request.after = index - 1;
        request.arrival = beginnings.Pause();
      } else {
        beginnings.Begin(session, (session - w.arrivals.clients + 1) * w.turns - 1, request);
        trace.AddSpan(Say(Content::kSystem, 0, w.system));
        trace.AddSpan(Say(Content::kPersona, session / w.group, w.persona));
        trace.AddSpan(Say(Content::kScenario, session, w.scenario));
      }
      trace.AddSpan(Say(Content::kMessage, session * w.turns + turn, w.message));
    }
  }
  return trace;
}

Trace MakePrefixes(const PrefixWorkload& w, uint64_t seed) {
  Random random(seed);
  Beginnings beginnings(w.arrivals, random);
  const Zipf groups(w.groups, w.zipf);
  Trace trace{.name = "prefixes"};
  for (int64_t i = 0; i < w.requests; ++i) {
    TraceRequest& request = trace.AddRequest();
    request.output_tokens = static_cast<int32_t>(w.answer);
    beginnings.Begin(i, i - w.arrivals.clients, request);
    trace.AddSpan(Say(Content::kPrefix, groups.Draw(random), w.prefix));
    trace.AddSpan(Say(Content::kOwn, i, w.own));
  }
  return trace;
}

Trace MakeRag(const RagWorkload& w, uint64_t seed) {
  Random random(seed);
  Beginnings beginnings(w.arrivals, random);
  const Zipf documents(w.documents, w.zipf);
  Trace trace{.name = "rag"};
  for (int64_t i = 0; i < w.requests; ++i) {
    TraceRequest& request = trace.AddRequest();
    request.output_tokens = static_cast<int32_t>(w.answer);
    beginnings.Begin(i, i - w.arrivals.clients, request);
    trace.AddSpan(Say(Content::kSystem, 0, w.system));
    for (int64_t pick = 0; pick < w.picks; ++pick)
      trace.AddSpan(Say(Content::kDocument, documents.Draw(random), w.document));
    trace.AddSpan(Say(Content::kQuestion, i, w.question));
  }
  return trace;
}

}  // namespace kvring::sim
