// OpenAI answers (stream chunks and whole objects) as events of Inference.Generate. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "kvring/v1/inference.pb.h"

namespace kvring::router {

/// Counts that nobody told: zeros, and -1 for the cached tokens.
v1::Usage UnknownUsage();
/// The deltas of one chunk or answer, or its error alone; its usage, if it has one, goes to `usage`. Text
/// that is no JSON object is an error of the replica.
std::vector<v1::GenerateResponse> ReadOpenAiAnswer(std::string_view json, v1::Usage& usage);
/// The error of an answer with that status; a body that is no OpenAI error is shown by its status alone.
v1::GenerateResponse ReadOpenAiError(int status, std::string_view body);

}  // namespace kvring::router
