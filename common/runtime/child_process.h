// The one door to other processes: start a program as a child that dies with this process, even by SIGKILL.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace kvring {

/// Starts `arguments[0]` with its arguments; standard streams are inherited. Signals blocked by this process
/// are unblocked there.
absl::StatusOr<pid_t> StartChild(const std::vector<std::string>& arguments);
/// Whether the child has ended; then it is reaped and `description` says how ("exit code 1", "signal 9").
bool ReapChild(pid_t child, std::string& description);
/// Asks it to end, waits up to `wait_ms`, then kills it; reaps it.
void StopChild(pid_t child, int wait_ms);
/// Path of this program.
std::string SelfPath();

}  // namespace kvring
