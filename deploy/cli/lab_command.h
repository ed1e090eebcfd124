// The essay's offline experiments: `kvring lab measured` and `kvring lab timing`, one file each.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "deploy/cli/command.h"
#include "deploy/cli/lab_model.h"

namespace kvring::cli {

/// What both experiments ask for.
struct LabOptions {
  LabModelOptions model;
  std::string device = "cpu";
  std::vector<int32_t> lengths;
  bool json = false;
};

void AddLabOptions(CLI::App& command, LabOptions& options);
void AddLabMeasured(CLI::App& lab, Action& action);
void AddLabTiming(CLI::App& lab, Action& action);

}  // namespace kvring::cli
