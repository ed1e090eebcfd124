// A fleet of estimated cards, and the public trace it serves.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "sim/executor_preset.h"
#include "sim/fleet_simulation.h"
#include "sim/io/trace_reader.h"
#include "tests/unit/sim/trace_fixture.h"

namespace kvring::sim {

inline Trace Mooncake(int64_t limit) {
  auto trace = ReadTrace(MooncakePath(), {.limit = limit});
  EXPECT_TRUE(trace.ok()) << trace.status();
  return *std::move(trace);
}

inline FleetOptions Fleet(const std::string& policy, int32_t replicas, int64_t kv_tokens, int32_t block) {
  const ExecutorPreset preset = FindExecutorPreset("h100-8b").value();
  FleetOptions options;
  options.replicas = replicas;
  options.replica = {.kv_tokens = kv_tokens,
                     .block_tokens = block,
                     .cost = preset.cost,
                     .scheduler = {.max_batch_tokens = 8192, .max_running = 256, .max_waiting = 1 << 20}};
  options.router.policy = policy;
  options.router.seed = 1;
  return options;
}

}  // namespace kvring::sim
