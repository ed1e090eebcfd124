// kvring drain: takes a replica out of the choice while its running requests finish, or puts it back.
#include <cstdio>
#include <memory>

#include "deploy/cli/client.h"
#include "deploy/cli/command.h"

namespace kvring::cli {
namespace {

struct Options {
  RouterAddress router;
  v1::DrainRequest request;
  bool json = false;
};

int Run(const Options& options) {
  const auto replica = Client(options.router).Drain(options.request);
  if (!replica.ok()) return Fail(replica.status());
  if (options.json) {
    std::printf("{\"id\":\"%s\",\"state\":\"%s\",\"in_flight\":%d}\n", replica->id().c_str(),
                replica->state().c_str(), replica->in_flight());
  } else {
    std::printf("%s is %s, %d requests under way\n", replica->id().c_str(), replica->state().c_str(),
                replica->in_flight());
  }
  return 0;
}

}  // namespace

void AddDrain(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  CLI::App* command =
      app.add_subcommand("drain", "Take a replica out of the choice; running requests finish");
  command
      ->add_option_function<std::string>(
          "replica", [options](const std::string& name) { options->request.set_replica(name); },
          "id or URL of the replica")
      ->required();
  command->add_flag_callback(
      "--undo", [options] { options->request.set_undrain(true); }, "put it back");
  AddRouterOptions(*command, options->router);
  command->add_flag("--json", options->json);
  command->footer("Examples:\n  kvring drain r-1a2b3c4d\n  kvring drain grpc://10.0.0.7:9091 --undo");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
