#include "replica/server/replica_server.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/metrics.h"
#include "common/net/http_server.h"
#include "common/runtime/clock.h"
#include "common/runtime/entropy.h"
#include "common/runtime/log.h"
#include "common/status_macros.h"
#include "replica/model/cpu_executor.h"
#if KVRING_CUDA
#include "replica/model/cuda_executor.h"
#endif
#include "replica/model/host_block_store.h"
#include "replica/server/grpc_service.h"
#include "replica/server/http_service.h"
#include "replica/server/replica_admin.h"
#include "replica/server/reporter.h"

namespace kvring::replica {
namespace {

constexpr int kMaxMessageBytes = 64 << 20;
constexpr int64_t kDefaultContexts = 4;

// Tokens of the KV pool: as told, from bytes, or room for a few full conversations.
absl::StatusOr<int64_t> PoolTokens(const ReplicaOptions& options, const ModelConfig& config,
                                   kernels::KvType type) {
  const int64_t tokens = options.kv_tokens > 0  ? options.kv_tokens
                         : options.kv_bytes > 0 ? options.kv_bytes / KvBytesPerToken(config, type)
                                                : kDefaultContexts * config.context_length;
  if (tokens >= options.block_size) return tokens;
  return absl::InvalidArgumentError(absl::StrCat("--kv-tokens/--kv-memory: room for ", tokens,
                                                 " tokens is less than one block of ", options.block_size));
}

absl::StatusOr<std::unique_ptr<CpuExecutor>> LoadCpuExecutor(const ReplicaOptions& options) {
  KVRING_ASSIGN_OR_RETURN(ModelSource source, ModelSource::Open(options.model_path));
  CpuOptions cpu;
  cpu.block_size = options.block_size;
  cpu.threads = options.threads;
  cpu.precision = options.exact ? Precision::kFp32 : Precision::kFast;
  if (!options.kv_type.empty()) {
    KVRING_ASSIGN_OR_RETURN(cpu.kv_type, ParseKvType(options.kv_type));
  }
  KVRING_ASSIGN_OR_RETURN(cpu.kv_tokens, PoolTokens(options, source.config(), KvTypeOf(cpu)));
  return CpuExecutor::Load(std::move(source), cpu);
}

// "cuda" or "cuda:N"; nullopt for anything else.
std::optional<int> CudaDevice(std::string_view device) {
  constexpr std::string_view kCuda = "cuda";
  if (device == kCuda) return 0;
  if (!device.starts_with("cuda:")) return std::nullopt;
  device.remove_prefix(kCuda.size() + 1);
  int number = 0;
  const auto [end, error] = std::from_chars(device.data(), device.data() + device.size(), number);
  const bool whole = error == std::errc() && end == device.data() + device.size() && number >= 0;
  return whole ? std::optional(number) : std::nullopt;
}

absl::StatusOr<std::unique_ptr<Executor>> LoadCudaExecutor(const ReplicaOptions& options, int device) {
#if KVRING_CUDA
  if (options.exact || !options.kv_type.empty() || options.host_tier_bytes > 0) {
    return absl::InvalidArgumentError(
        "--device cuda: weights, keys and values are bf16; no --exact, --kv-type or --host-tier");
  }
  CudaOptions cuda{.device = device,
                   .kv_tokens = options.kv_tokens,
                   .block_size = options.block_size,
                   .threads = options.threads};
  KVRING_ASSIGN_OR_RETURN(const ModelSource source, ModelSource::Open(options.model_path));
  if (options.kv_bytes > 0) {
    KVRING_ASSIGN_OR_RETURN(cuda.kv_tokens, PoolTokens(options, source.config(), kernels::KvType::kBf16));
  }
  return CudaExecutor::Load(source, cuda);
#else
  (void)options;
  return absl::UnimplementedError(
      absl::StrCat("--device cuda:", device, ": this build has no CUDA (configure with the preset cuda)"));
#endif
}

}  // namespace

class ReplicaServer::Impl {
 public:
  absl::Status Start(const ReplicaOptions& options) {
    KVRING_ASSIGN_OR_RETURN(model_,
                            ServedModel::Load(options.model_path, options.model_name, options.chat_template));
    KVRING_RETURN_IF_ERROR(LoadExecutor(options));
    if (executor_->limits().vocab_size != model_->tokenizer().vocab_size()) {
      return absl::InvalidArgumentError(absl::StrCat(options.model_path, ": the tokenizer has ",
                                                     model_->tokenizer().vocab_size(), " tokens, the model ",
                                                     executor_->limits().vocab_size));
    }
    metrics_
        .GetGauge("kvring_replica_kv_bytes_per_token", "Bytes of a token's keys and values, scales included.")
        .Set(static_cast<double>(executor_->limits().kv_bytes_per_token));
    EngineOptions engine;
    engine.cache_key = RandomSeed();
    KVRING_RETURN_IF_ERROR(OpenHostTier(options, engine));
    if (options.max_batch_tokens > 0) engine.scheduler.max_batch_tokens = options.max_batch_tokens;
    loop_ = std::make_unique<EngineLoop>(*executor_, engine, *model_, metrics_);
    KVRING_RETURN_IF_ERROR(StartHttp(options));
    KVRING_RETURN_IF_ERROR(StartGrpc(options));
    ready_ = true;
    StartReporter(options);
    return absl::OkStatus();
  }

  void Stop(Duration deadline) {
    if (loop_ == nullptr) return;
    ready_ = false;
    reporter_.reset();
    const Instant end = Now() + deadline;
    while (loop_->in_flight() > 0 && Now() < end) absl::SleepFor(absl::Milliseconds(10));
    if (grpc_ != nullptr) grpc_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
    if (http_ != nullptr) http_->Stop(std::chrono::milliseconds(200));
    grpc_.reset();
    http_.reset();
    loop_.reset();
  }

  std::string http_address() const { return http_ == nullptr ? "" : http_->address(); }
  const std::string& grpc_address() const { return grpc_address_; }
  Epoch epoch() const { return epoch_; }
  const ServedModel& model() const { return *model_; }
  int64_t capacity() const {
    return int64_t{executor_->limits().num_blocks} * executor_->limits().block_size;
  }

 private:
  absl::Status LoadExecutor(const ReplicaOptions& options) {
    if (options.device == "cpu") {
      KVRING_ASSIGN_OR_RETURN(std::unique_ptr<CpuExecutor> cpu, LoadCpuExecutor(options));
      cpu_ = cpu.get();
      executor_ = std::move(cpu);
      return absl::OkStatus();
    }
    const std::optional<int> device = CudaDevice(options.device);
    if (!device.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--device ", options.device, ": is neither cpu nor cuda[:N]"));
    }
    KVRING_ASSIGN_OR_RETURN(executor_, LoadCudaExecutor(options, *device));
    return absl::OkStatus();
  }

  absl::Status OpenHostTier(const ReplicaOptions& options, EngineOptions& engine) {
    if (options.host_tier_bytes == 0) return absl::OkStatus();
    if (executor_->limits().window > 0) {
      return absl::InvalidArgumentError(absl::StrCat("--host-tier: this model sees ",
                                                     executor_->limits().window,
                                                     " tokens at most, which stay in the pool; no tier"));
    }
    KVRING_ASSIGN_OR_RETURN(
        host_store_, HostBlockStore::Open(cpu_->kv_pool(), {options.host_tier_bytes, options.host_tier_dir,
                                                            cpu_->kv_fingerprint()}));
    KVRING_ASSIGN_OR_RETURN(engine.host_tier.restored, host_store_->Restore());
    engine.host_tier.slots = host_store_->slots();
    engine.host_tier.store = host_store_.get();
    engine.cache_key = host_store_->key();
    Log(LogLevel::kInfo, "replica", "host tier",
        {{"blocks", host_store_->slots()}, {"restored", engine.host_tier.restored.size()}});
    return absl::OkStatus();
  }

  absl::Status StartHttp(const ReplicaOptions& options) {
    if (options.listen.empty()) return absl::OkStatus();
    http_service_ =
        std::make_unique<HttpService>(*loop_, *model_, metrics_, [this] { return ready_.load(); });
    net::HttpServerOptions http;
    http.listen = options.listen;
    KVRING_ASSIGN_OR_RETURN(
        http_, net::HttpServer::Start(http, [this](net::HttpRequest request, net::ResponseWriter writer) {
          http_service_->Handle(std::move(request), std::move(writer));
        }));
    return absl::OkStatus();
  }

  absl::Status StartGrpc(const ReplicaOptions& options) {
    if (options.grpc_listen.empty()) return absl::OkStatus();
    grpc_service_ = std::make_unique<GrpcService>(
        *loop_, *model_, ReplicaIdentity{epoch_, capacity(), loop_->max_tokens_per_sequence(), "kvring/0.1"});
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(options.grpc_listen, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.RegisterService(grpc_service_.get());
    admin_service_ = std::make_unique<ReplicaAdmin>(*loop_);
    builder.RegisterService(admin_service_.get());
    grpc_ = builder.BuildAndStart();
    if (grpc_ == nullptr || port == 0)
      return absl::UnavailableError(absl::StrCat("--grpc-listen ", options.grpc_listen, ": cannot listen"));
    grpc_address_ = absl::StrCat(options.grpc_listen.substr(0, options.grpc_listen.rfind(':')), ":", port);
    return absl::OkStatus();
  }

  void StartReporter(const ReplicaOptions& options) {
    if (options.routers.empty()) return;
    reporter_ = std::make_unique<Reporter>(
        Reporter::Options{options.routers,
                          options.advertise.empty() ? grpc_address_ : options.advertise,
                          epoch_,
                          {model_->name()},
                          options.router_key});
  }

  const Epoch epoch_{RandomSeed()};
  MetricRegistry metrics_;
  std::unique_ptr<ServedModel> model_;
  std::unique_ptr<Executor> executor_;
  CpuExecutor* cpu_ = nullptr;  // the same, where it is one
  std::unique_ptr<HostBlockStore> host_store_;
  std::unique_ptr<EngineLoop> loop_;
  std::unique_ptr<HttpService> http_service_;
  std::unique_ptr<GrpcService> grpc_service_;
  std::unique_ptr<ReplicaAdmin> admin_service_;
  std::unique_ptr<net::HttpServer> http_;
  std::unique_ptr<grpc::Server> grpc_;
  std::string grpc_address_;
  std::unique_ptr<Reporter> reporter_;
  std::atomic<bool> ready_{false};
};

absl::StatusOr<std::unique_ptr<ReplicaServer>> ReplicaServer::Start(const ReplicaOptions& options) {
  auto impl = std::make_unique<Impl>();
  KVRING_RETURN_IF_ERROR(impl->Start(options));
  return std::unique_ptr<ReplicaServer>(new ReplicaServer(std::move(impl)));
}

ReplicaServer::ReplicaServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ReplicaServer::~ReplicaServer() { impl_->Stop(Duration{0}); }
std::string ReplicaServer::http_address() const { return impl_->http_address(); }
std::string ReplicaServer::grpc_address() const { return impl_->grpc_address(); }
Epoch ReplicaServer::epoch() const { return impl_->epoch(); }
const std::string& ReplicaServer::model_name() const { return impl_->model().name(); }
int64_t ReplicaServer::kv_capacity_tokens() const { return impl_->capacity(); }
void ReplicaServer::Stop(Duration deadline) { impl_->Stop(deadline); }

}  // namespace kvring::replica
