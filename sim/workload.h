// Workloads: traces made from a description and a seed. Pure.
//
//   chat      conversations of several turns; a turn's prompt is all that was said before and a new message.
//             Everybody shares the system prompt, `group` conversations a persona, each has a scenario of its
//             own. The next message comes when the answer has ended and an exponential pause is over.
//             roleplay is another name for it; agents (long tool prompts and results, 30 turns, short pauses)
//             and back-to-back (no pauses) are it with other defaults.
//   prefixes  single requests; each begins with the prefix of one of `groups`, drawn by Zipf's law with the
//             exponent `zipf` (0: all alike), and goes on with `own` tokens that nobody shares: prefix + own
//             is the whole prompt. zipf is it with 1,000 groups and exponent 1.
//   rag       single requests: the system prompt, `picks` of `documents` by Zipf's law in the order drawn,
//   and
//             a question of its own. Two prompts share as far as they drew the same.
//
// Conversations, or single requests, begin at random (Poisson, `rate` a second). Open loop: whatever the
// fleet does. `swing` > 0 lets the rate go up and down by that share over `period` seconds (a day in small).
// Closed loop, `clients` > 0: so many clients, each of which begins the next one when its last has ended and
// a pause (`pause`, exponential) is over; then `rate` only spreads their first ones.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/trace.h"

namespace kvring::sim {

/// When things begin.
struct Arrivals {
  double rate = 5;  // a second, mean
  double swing = 0;
  double period = 600;  // seconds
  int64_t clients = 0;
  double pause = 10;  // seconds, mean
};

struct ChatWorkload {
  int64_t sessions = 200;
  int64_t turns = 10;
  int64_t group = 20;
  int64_t system = 1000;  // tokens, as those below
  int64_t persona = 300;
  int64_t scenario = 200;
  int64_t message = 150;
  int64_t answer = 100;
  Arrivals arrivals;  // its pause also stands between turns
};
Trace MakeChat(const ChatWorkload& workload, uint64_t seed);

struct PrefixWorkload {
  int64_t requests = 1000;
  int64_t groups = 10;
  int64_t prefix = 512;
  int64_t own = 512;
  int64_t answer = 100;
  double zipf = 0;
  Arrivals arrivals{.rate = 10};
};
Trace MakePrefixes(const PrefixWorkload& workload, uint64_t seed);

struct RagWorkload {
  int64_t requests = 1000;
  int64_t documents = 1000;
  int64_t picks = 4;
  int64_t system = 300;
  int64_t document = 800;
  int64_t question = 60;
  int64_t answer = 200;
  double zipf = 1;
  Arrivals arrivals{.rate = 10};
};
Trace MakeRag(const RagWorkload& workload, uint64_t seed);

/// "chat", "prefixes:groups=1,requests=10". InvalidArgument, naming the field: unknown workload or field, a
/// number out of range.
absl::StatusOr<Trace> MakeWorkload(std::string_view description, uint64_t seed);
/// Their names.
std::vector<std::string_view> WorkloadNames();

}  // namespace kvring::sim
