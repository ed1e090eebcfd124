#include "deploy/cli/generate_options.h"

#include <boost/json.hpp>

#include "absl/strings/str_format.h"

namespace kvring::cli {

void AddGenerateOptions(CLI::App& command, GenerateOptions& options) {
  AddRouterOptions(command, options.router);
  command.add_option("--model", options.model, "model name (default: the first served)");
  command.add_option("--session", options.session, "session id: requests of one conversation share it");
  command.add_option("--max-tokens", options.max_tokens)->check(CLI::PositiveNumber);
  command.add_option("--temperature", options.temperature)->check(CLI::Range(0.0, 2.0));
  command.add_option("--seed", options.seed);
  command.add_flag("--json", options.json, "one JSON object per answer");
}

v1::GenerateRequest BaseRequest(const GenerateOptions& options) {
  v1::GenerateRequest request;
  request.set_model(options.model);
  request.set_session_id(options.session);
  v1::Sampling& sampling = *request.mutable_sampling();
  if (options.max_tokens) sampling.set_max_tokens(*options.max_tokens);
  if (options.temperature) sampling.set_temperature(*options.temperature);
  if (options.seed) sampling.set_seed(*options.seed);
  return request;
}

std::string AnswerJson(const Answer& answer) {
  return boost::json::serialize(boost::json::object{{"text", answer.text},
                                                    {"prompt_tokens", answer.usage.prompt_tokens()},
                                                    {"completion_tokens", answer.usage.completion_tokens()},
                                                    {"cached_tokens", answer.usage.cached_tokens()},
                                                    {"ttft_s", ToSeconds(answer.ttft)},
                                                    {"replica", answer.replica},
                                                    {"reason", answer.reason},
                                                    {"request_id", answer.request_id}});
}

std::string AnswerNote(const Answer& answer) {
  return absl::StrFormat("[%s %s · %d of %d prompt tokens cached · first token %.0f ms · %d tokens]",
                         answer.replica.empty() ? "replica not told" : answer.replica, answer.reason,
                         answer.usage.cached_tokens(), answer.usage.prompt_tokens(), ToMillis(answer.ttft),
                         answer.usage.completion_tokens());
}

}  // namespace kvring::cli
