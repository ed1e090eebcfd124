// Workloads: traces made from a description and a seed. Pure.
//
//   chat      conversations of several turns; a turn's prompt is all that was said before and a new message.
//             Everybody shares the system prompt, `group` conversations a persona, each has a scenario of its
//             own. Conversations begin at random (Poisson, `rate` a second); the next message comes when the
//             answer has ended and an exponential pause is over.
//   prefixes  single requests (Poisson); each begins with the prefix of one of `groups`, drawn at random, and
//             goes on with `own` tokens that nobody shares: prefix + own is the whole prompt.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/trace.h"

namespace kvring::sim {

struct ChatWorkload {
  int64_t sessions = 200;
  int64_t turns = 10;
  int64_t group = 20;
  int64_t system = 1000;  // tokens, as those below
  int64_t persona = 300;
  int64_t scenario = 200;
  int64_t message = 150;
  int64_t answer = 100;
  double rate = 5;
  double pause = 10;  // seconds, mean
};
Trace MakeChat(const ChatWorkload& workload, uint64_t seed);

struct PrefixWorkload {
  int64_t requests = 1000;
  int64_t groups = 10;
  int64_t prefix = 512;
  int64_t own = 512;
  int64_t answer = 100;
  double rate = 10;
};
Trace MakePrefixes(const PrefixWorkload& workload, uint64_t seed);

/// "chat", "prefixes:groups=1,requests=10". InvalidArgument, naming the field: unknown workload or field, a
/// number out of range.
absl::StatusOr<Trace> MakeWorkload(std::string_view description, uint64_t seed);

}  // namespace kvring::sim
