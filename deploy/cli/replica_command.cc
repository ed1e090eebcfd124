// kvring replica: one engine with its HTTP and gRPC services.
#include <cstdio>
#include <memory>
#include <thread>

#include "common/runtime/log.h"
#include "common/runtime/signals.h"
#include "deploy/cli/command.h"
#include "replica/kv/kv_size.h"
#include "replica/server/replica_server.h"

namespace kvring::cli {
namespace {

struct Options {
  replica::ReplicaOptions replica;
  std::string kv_memory;
  std::string host_tier;
  int drain_seconds = 30;
};

int Run(Options options) {
  for (const auto& [text, bytes] : {std::pair(&options.kv_memory, &options.replica.kv_bytes),
                                    std::pair(&options.host_tier, &options.replica.host_tier_bytes)}) {
    if (text->empty()) continue;
    if (const absl::Status status = ParseBytes(*text, *bytes); !status.ok()) {
      Fail(status);
      return 2;
    }
  }
  auto server = replica::ReplicaServer::Start(options.replica);
  if (!server.ok()) return Fail(server.status());
  Log(LogLevel::kInfo, "replica", "serving",
      {{"model", (*server)->model_name()},
       {"http", (*server)->http_address()},
       {"grpc", (*server)->grpc_address()},
       {"kv_tokens", (*server)->kv_capacity_tokens()},
       {"epoch", (*server)->epoch().value}});
  const int signal = WaitForSignal();
  Log(LogLevel::kInfo, "replica", "stopping", {{"signal", signal}});
  (*server)->Stop(std::chrono::seconds(options.drain_seconds));
  return 0;
}

}  // namespace

void AddReplica(CLI::App& app, Action& action) {
  auto options = std::make_shared<Options>();  // shared by the parser and the action, whichever lives longer
  replica::ReplicaOptions& replica = options->replica;
  replica.model_path = DefaultModelPath();
  replica.listen = "127.0.0.1:8081";
  replica.grpc_listen = "127.0.0.1:9091";
  replica.threads = static_cast<int32_t>(std::thread::hardware_concurrency());
  CLI::App* command = app.add_subcommand("replica", "One inference engine with its HTTP and gRPC services");
  command
      ->add_option("--model", replica.model_path,
                   "GGUF file, or directory of config.json, *.safetensors and tokenizer.json")
      ->capture_default_str();
  command->add_option("--name", replica.model_name, "name it is served under (default: the file's)");
  command->add_option("--chat-template", replica.chat_template,
                      "file with the chat template, in place of the model's own");
  command->add_option("--listen", replica.listen, "HTTP address:port; port 0: any")->capture_default_str();
  command->add_option("--grpc-listen", replica.grpc_listen, "gRPC address:port; port 0: any")
      ->capture_default_str();
  command->add_option("--device", replica.device, "cpu, or cuda[:N] in a build with CUDA")
      ->capture_default_str();
  auto* tokens = command->add_option("--kv-tokens", replica.kv_tokens, "room of the KV pool in tokens")
                     ->check(CLI::PositiveNumber);
  command->add_option("--kv-memory", options->kv_memory, "room of the KV pool in bytes, like 2GiB")
      ->excludes(tokens);
  command->add_option("--block", replica.block_size, "tokens per KV block")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--threads", replica.threads, "compute threads")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--batch-tokens", replica.max_batch_tokens, "token budget of a step")
      ->check(CLI::PositiveNumber);
  command->add_flag("--exact", replica.exact, "fp32 weights and KV");
  command
      ->add_option("--kv-type", replica.kv_type,
                   "keys and values in f32, f16, bf16 or int8 (default: bf16; f32 with --exact)")
      ->check(CLI::IsMember(replica::KvTypeNames()));
  auto* tier = command->add_option(
      "--host-tier", options->host_tier,
      "keep evicted KV blocks in so many bytes of host memory, like 4GiB (default: none)");
  command
      ->add_option("--host-tier-dir", replica.host_tier_dir,
                   "keep them in a file in this directory instead, which outlives the process")
      ->needs(tier);
  command->add_option("--router", replica.routers, "gRPC address of a router to register at (repeatable)");
  command->add_option("--router-key", replica.router_key, "API key of the routers, where they want one")
      ->envname("KVRING_API_KEY");
  command->add_option("--advertise", replica.advertise, "gRPC address told to routers");
  command->add_option("--drain-seconds", options->drain_seconds, "time for running requests at SIGTERM")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->footer(
      "Examples:\n  kvring replica --model model.gguf --kv-memory 2GiB\n"
      "  kvring replica --model ./Qwen3-0.6B --kv-type int8\n"
      "  kvring replica --model model.gguf --listen 0.0.0.0:8081 --grpc-listen 0.0.0.0:9091 --router "
      "router:9090");
  command->callback([options, &action] { action = [options] { return Run(*options); }; });
}

}  // namespace kvring::cli
