// What chat and complete have in common: where to, sampling, output form.
#pragma once

#include <optional>
#include <string>

#include "deploy/cli/client.h"
#include "deploy/cli/command.h"

namespace kvring::cli {

struct GenerateOptions {
  RouterAddress router;
  std::string model;
  std::string session;
  std::optional<int32_t> max_tokens;
  std::optional<float> temperature;
  std::optional<uint64_t> seed;
  bool json = false;
};

void AddGenerateOptions(CLI::App& command, GenerateOptions& options);
/// A request with model, session and sampling filled in.
v1::GenerateRequest BaseRequest(const GenerateOptions& options);
/// One object with text, usage and where it was served.
std::string AnswerJson(const Answer& answer);
/// "[r-12ab34cd session · 96 of 112 prompt tokens cached · first token 12 ms · 20 tokens]"
std::string AnswerNote(const Answer& answer);

}  // namespace kvring::cli
