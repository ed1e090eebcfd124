// What the subcommands share: how they are added to the program and how they end. Each file here is one
// subcommand with its options, its help with examples, and a Run function; exit codes are 0 fine, 1 finding
// or failure, 2 usage.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "absl/status/status.h"

namespace kvring::cli {

/// The chosen subcommand's work; set by its callback, run by main after parsing.
using Action = std::function<int()>;

void AddUp(CLI::App& app, Action& action);
void AddRouter(CLI::App& app, Action& action);
void AddReplica(CLI::App& app, Action& action);
void AddChat(CLI::App& app, Action& action);
void AddComplete(CLI::App& app, Action& action);
void AddStats(CLI::App& app, Action& action);
void AddWhy(CLI::App& app, Action& action);
void AddDrain(CLI::App& app, Action& action);
void AddSize(CLI::App& app, Action& action);
void AddSim(CLI::App& app, Action& action);
void AddLab(CLI::App& app, Action& action);
void AddAudit(CLI::App& app, Action& action);

/// Prints "kvring: …" to standard error; returns 1.
int Fail(const absl::Status& status);
int Fail(const std::string& message);

/// Where the quick start keeps the model: $KVRING_MODEL, else
/// ~/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf.
std::string DefaultModelPath();
/// "64GiB", "2.5GB", "512k", "1000" to bytes (k, M, G, T: powers of 1000; Ki…: of 1024). Error:
/// InvalidArgument.
absl::Status ParseBytes(const std::string& text, int64_t& bytes);
/// 4294967296 to "4.00 GiB".
std::string FormatBytes(int64_t bytes);

}  // namespace kvring::cli
