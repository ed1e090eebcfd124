// The page of `kvring sim run --html`: one self-contained file, no scripts, plots as SVG. Per policy: hit
// rate beside the ceiling and one pooled LRU; first tokens, split in queue and prefill, and their
// distribution; load of each replica over time; hits over time; what more or less memory would give.
#pragma once

#include <string>
#include <vector>

#include "deploy/cli/sim_setup.h"

namespace kvring::cli {

/// `runs`: one per policy.
std::string SimPage(const SimOptions& options, const SimSetup& setup, const std::vector<SimRun>& runs);
/// PermissionDenied, naming the path: it cannot be written.
absl::Status WriteSimPage(const std::string& path, const SimOptions& options, const SimSetup& setup,
                          const std::vector<SimRun>& runs);

}  // namespace kvring::cli
