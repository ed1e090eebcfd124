// kvring complete: one text completion over gRPC.
#include <cstdio>
#include <memory>

#include "deploy/cli/generate_options.h"

namespace kvring::cli {
namespace {

struct Options {
  GenerateOptions generate;
  std::string prompt;
};

int Run(const Options& options) {
  v1::GenerateRequest request = BaseRequest(options.generate);
  request.set_text(options.prompt);
  Client client(options.generate.router);
  const auto answer = client.Generate(request, [&](std::string_view text) {
    if (options.generate.json) return;
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  });
  if (!answer.ok()) return Fail(answer.status());
  if (options.generate.json) {
    std::printf("%s\n", AnswerJson(*answer).c_str());
  } else {
    std::printf("\n%s\n", AnswerNote(*answer).c_str());
  }
  return 0;
}

}  // namespace

void AddComplete(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  CLI::App* command = app.add_subcommand("complete", "Complete a text");
  command->add_option("prompt", options->prompt)->required();
  AddGenerateOptions(*command, options->generate);
  command->footer("Examples:\n  kvring complete 'The capital of France is' --max-tokens 16 --temperature 0");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
