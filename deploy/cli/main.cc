// kvring: one program. main parses, blocks signals, runs the chosen subcommand.
#include <cstdio>

#include "common/runtime/log.h"
#include "common/runtime/signals.h"
#include "deploy/cli/command.h"

int main(int argc, char** argv) {
  kvring::BlockSignals();
  CLI::App app{"kvring: cache-aware load balancer for LLM inference, and its replicas.", "kvring"};
  app.require_subcommand(1);
  app.set_version_flag("--version", "kvring 0.1.0");
  std::string log_level = "info";
  app.add_option("--log-level", log_level, "debug, info, warn or error")->capture_default_str();
  app.fallthrough();  // the global options may stand behind the subcommand too
  kvring::cli::Action action;
  kvring::cli::AddUp(app, action);
  kvring::cli::AddRouter(app, action);
  kvring::cli::AddReplica(app, action);
  kvring::cli::AddChat(app, action);
  kvring::cli::AddComplete(app, action);
  kvring::cli::AddStats(app, action);
  kvring::cli::AddWhy(app, action);
  kvring::cli::AddDrain(app, action);
  kvring::cli::AddSize(app, action);
  kvring::cli::AddSim(app, action);
  kvring::cli::AddLab(app, action);
  kvring::cli::AddAudit(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  kvring::LogLevel level = kvring::LogLevel::kInfo;
  if (!kvring::ParseLogLevel(log_level, level)) {
    kvring::cli::Fail("--log-level: '" + log_level + "' is not debug, info, warn or error");
    return 2;
  }
  kvring::SetLogLevel(level);
  return action();
}
