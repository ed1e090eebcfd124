// kvring chat: a conversation over gRPC. With a message: one turn. Without: one turn per line of standard
// input.
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/runtime/entropy.h"
#include "deploy/cli/generate_options.h"

namespace kvring::cli {
namespace {

struct Options {
  GenerateOptions generate;
  std::string system;
  std::string message;
};

void AddMessage(v1::GenerateRequest& request, const char* role, const std::string& content) {
  v1::Message& message = *request.mutable_messages()->add_messages();
  message.set_role(role);
  message.set_content(content);
}

class Chat {
 public:
  explicit Chat(const Options& options)
      : options_(options), client_(options.generate.router), request_(BaseRequest(options.generate)) {
    if (request_.session_id().empty())
      request_.set_session_id(absl::StrCat("chat-", absl::Hex(RandomSeed(), absl::kZeroPad16)));
    if (!options_.system.empty()) AddMessage(request_, "system", options_.system);
  }

  absl::Status Turn(const std::string& text) {
    AddMessage(request_, "user", text);
    const bool json = options_.generate.json;
    const auto answer = client_.Generate(request_, [&](std::string_view piece) {
      if (json) return;
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      std::fflush(stdout);
    });
    if (!answer.ok()) return answer.status();
    AddMessage(request_, "assistant", answer->text);
    std::printf(json ? "%s\n" : "\n%s\n", (json ? AnswerJson(*answer) : AnswerNote(*answer)).c_str());
    return absl::OkStatus();
  }

 private:
  const Options& options_;
  Client client_;
  v1::GenerateRequest request_;
};

int Run(const Options& options) {
  Chat chat(options);
  if (!options.message.empty()) {
    const absl::Status status = chat.Turn(options.message);
    return status.ok() ? 0 : Fail(status);
  }
  const bool prompt = isatty(STDIN_FILENO) != 0 && !options.generate.json;
  for (std::string line;
       (prompt ? void(std::printf("> ")) : void()), std::fflush(stdout), std::getline(std::cin, line);) {
    if (line.empty()) continue;
    if (const absl::Status status = chat.Turn(line); !status.ok()) return Fail(status);
  }
  return 0;
}

}  // namespace

void AddChat(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  CLI::App* command = app.add_subcommand("chat", "Talk to a model; each line of standard input is a turn");
  command->add_option("message", options->message, "one turn instead of a conversation");
  command->add_option("--system", options->system, "system prompt");
  AddGenerateOptions(*command, options->generate);
  command->footer(
      "Examples:\n  kvring chat --system 'Be brief.'\n  echo 'Hello' | kvring chat --json --max-tokens 20");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
