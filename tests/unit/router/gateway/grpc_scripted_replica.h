// A replica behind gRPC whose every event the test writes: a real gRPC server on a free port with
// kvring.v1.Inference. Each request of an Exchange stream goes to the test's script, on the stream's own
// thread; cancellations are recorded.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/block_hash.h"
#include "common/runtime/clock.h"
#include "kvring/v1/inference.grpc.pb.h"
#include "router/gateway/exchange_client.h"

namespace kvring::router::test {

inline v1::GenerateResponse Admitted(int prompt, int cached, std::vector<uint32_t> ends = {}) {
  v1::GenerateResponse event;
  event.mutable_admitted()->set_prompt_tokens(prompt);
  event.mutable_admitted()->set_cached_tokens(cached);
  event.mutable_admitted()->mutable_block_end_bytes()->Add(ends.begin(), ends.end());
  return event;
}
inline v1::GenerateResponse Delta(const std::string& text, const std::string& finish = "") {
  v1::GenerateResponse event;
  event.mutable_delta()->set_text(text);
  event.mutable_delta()->set_finish_reason(finish);
  return event;
}
inline v1::GenerateResponse Usage(int prompt, int completion, int cached) {
  v1::GenerateResponse event;
  event.mutable_usage()->set_prompt_tokens(prompt);
  event.mutable_usage()->set_completion_tokens(completion);
  event.mutable_usage()->set_cached_tokens(cached);
  return event;
}
inline v1::GenerateResponse Error(int status, const std::string& message,
                                  const std::string& type = "server_error") {
  v1::GenerateResponse event;
  event.mutable_error()->set_http_status(status);
  event.mutable_error()->set_type(type);
  event.mutable_error()->set_message(message);
  return event;
}

class ScriptedReplica final : public v1::Inference::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ExchangeResponse, v1::ExchangeRequest>;
  struct Request {
    v1::Start start;
    Stream& stream;

    void Send(const v1::GenerateResponse& event) const {
      v1::ExchangeResponse message;
      v1::ExchangeResponse::Event& out = *message.add_events();
      out.set_id(start.id());
      *out.mutable_response() = event;
      stream.Write(message);
    }
  };
  using Script = std::function<void(const Request& request)>;

  explicit ScriptedReplica(Script script, std::string listen = "127.0.0.1:0")
      : script_(std::move(script)), listen_(std::move(listen)) {
    info_.set_epoch(7);
    info_.add_models("m");
    info_.set_block_size(16);
    info_.set_kv_capacity_tokens(4096);
    info_.set_hash_probe(HashProbe());
    Start();
  }
  ~ScriptedReplica() override { Stop(); }

  /// Kills what runs, as a dead process would.
  void Stop() {
    if (!server_) return;
    server_->Shutdown(gpr_now(GPR_CLOCK_MONOTONIC));
    server_.reset();
  }
  void Start() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(listen_, grpc::InsecureServerCredentials(), &port);
    builder.SetMaxReceiveMessageSize(64 << 20);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    listen_ = absl::StrCat("127.0.0.1:", port);
  }

  const std::string& address() const { return listen_; }
  std::string url() const { return "grpc://" + listen_; }
  v1::ReplicaInfo& info() { return info_; }  // before a connection
  std::atomic<bool> frozen{false};           // probes are not answered

  int streams() const { return streams_; }
  int requests() const {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }
  size_t cancelled() const {
    absl::MutexLock lock(&mutex_);
    return cancelled_.size();
  }
  v1::Start last() const {
    absl::MutexLock lock(&mutex_);
    return last_;
  }

 private:
  grpc::Status Exchange(grpc::ServerContext*, Stream* stream) override {
    ++streams_;
    v1::ExchangeResponse hello;
    *hello.mutable_info() = info_;
    stream->Write(hello);
    v1::ExchangeRequest request;
    while (stream->Read(&request)) {
      if (request.has_start()) {
        {
          absl::MutexLock lock(&mutex_);
          ++requests_;
          last_ = request.start();
        }
        script_({request.start(), *stream});
      } else {
        absl::MutexLock lock(&mutex_);
        cancelled_.insert(request.cancel().id());
      }
    }
    return grpc::Status::OK;
  }
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest*,
                          v1::ListModelsResponse*) override {
    while (frozen && !context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::OK;
  }

  const Script script_;
  std::string listen_;
  v1::ReplicaInfo info_;
  std::atomic<int> streams_{0};
  mutable absl::Mutex mutex_;
  int requests_ = 0;
  std::set<uint64_t> cancelled_;
  v1::Start last_;
  std::unique_ptr<grpc::Server> server_;
};

/// Everything one short answer consists of.
inline void AnswerShort(const ScriptedReplica::Request& request) {
  request.Send(Admitted(40, 16));
  request.Send(Delta("Hel"));
  request.Send(Delta("lo", "stop"));
  request.Send(Usage(40, 2, 16));
}

}  // namespace kvring::router::test
