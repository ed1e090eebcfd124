// kvring up: router, replicas and dashboard on this machine.
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/runtime/log.h"
#include "common/runtime/signals.h"
#include "deploy/cli/command.h"
#include "deploy/cli/demo.h"
#include "deploy/cli/fleet_process.h"
#include "replica/kv/kv_size.h"

namespace kvring::cli {
namespace {

constexpr auto kReadyTimeout = std::chrono::minutes(5);

struct Options {
  FleetOptions fleet;
  int port = 8080;
  int grpc_port = 9090;
  bool demo = false;
  bool keep = false;
};

int Run(Options options) {
  options.fleet.listen = absl::StrCat("127.0.0.1:", options.port);
  options.fleet.grpc_listen = absl::StrCat("127.0.0.1:", options.grpc_port);
  if (options.demo) {  // a person reads the table: only what is wrong may stand in it
    SetLogLevel(LogLevel::kError);
    options.fleet.log_level = "error";
  }
  const auto fleet = FleetProcess::Start(options.fleet);
  if (!fleet.ok()) return Fail(fleet.status());
  if (!(*fleet)->WaitReady(kReadyTimeout))
    return Fail("the replicas did not become ready; see the log above");
  std::printf("kvring is up: http://%s  gRPC %s  page http://%s/dashboard\n",
              (*fleet)->http_address().c_str(), (*fleet)->grpc_address().c_str(),
              (*fleet)->http_address().c_str());
  std::fflush(stdout);
  if (options.demo) {
    if (const absl::Status status = RunDemo(**fleet); !status.ok()) return Fail(status);
  }
  if (!options.demo || options.keep) {
    std::printf("Ctrl-C stops everything.\n");
    std::fflush(stdout);
    WaitForSignal();
  }
  return 0;
}

}  // namespace

void AddUp(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  options->fleet.model = DefaultModelPath();
  CLI::App* command = app.add_subcommand("up", "Router, replicas and dashboard on this machine");
  command->add_option("--replicas", options->fleet.replicas)->check(CLI::Range(1, 64))->capture_default_str();
  command->add_option("--model", options->fleet.model, "GGUF file or Hugging Face directory")
      ->capture_default_str();
  command->add_option("--port", options->port, "HTTP port")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--grpc-port", options->grpc_port)->check(CLI::Range(0, 65535))->capture_default_str();
  command->add_option("--policy", options->fleet.policy)->capture_default_str();
  command
      ->add_option("--threads", options->fleet.threads_per_replica,
                   "compute threads per replica (default: cores shared out)")
      ->check(CLI::PositiveNumber);
  command->add_option("--kv-tokens", options->fleet.kv_tokens, "room of each replica's KV pool in tokens")
      ->check(CLI::PositiveNumber);
  command->add_option("--seed", options->fleet.seed, "seed of the router's random choices");
  command->add_flag("--exact", options->fleet.exact, "fp32 weights and KV");
  command
      ->add_option("--kv-type", options->fleet.kv_type,
                   "keys and values of the replicas in f32, f16, bf16 or int8")
      ->check(CLI::IsMember(replica::KvTypeNames()));
  command->add_flag("--demo", options->demo, "run the demonstration, then stop");
  command->add_flag("--keep", options->keep, "with --demo: stay afterwards");
  command->footer("Examples:\n  kvring up\n  kvring up --replicas 2 --port 8000 --policy session-ring");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
