// kvring: one program. main parses, blocks signals, runs the chosen subcommand.
#include <cstdio>

#include "common/runtime/signals.h"
#include "deploy/cli/command.h"

int main(int argc, char** argv) {
  kvring::BlockSignals();
  CLI::App app{"kvring: cache-aware load balancer for LLM inference, and its replicas.", "kvring"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "kvring 0.1.0");
  kvring::cli::Action action;
  kvring::cli::AddUp(app, action);
  kvring::cli::AddRouter(app, action);
  kvring::cli::AddReplica(app, action);
  kvring::cli::AddChat(app, action);
  kvring::cli::AddComplete(app, action);
  kvring::cli::AddStats(app, action);
  kvring::cli::AddWhy(app, action);
  kvring::cli::AddSize(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  return action();
}
