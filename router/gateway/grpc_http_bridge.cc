#include "router/gateway/grpc_http_bridge.h"

#include <atomic>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/event_loop.h"
#include "common/net/sse_scanner.h"
#include "router/gateway/forward_head.h"
#include "router/gateway/grpc_openai_json.h"
#include "router/gateway/http_upstream.h"

namespace kvring::router {
namespace {

constexpr size_t kMaxCollected = size_t{64} << 20;

std::string HeadOf(const BridgedRequest& request) {
  const Endpoint& endpoint = *request.endpoint;
  std::string head =
      absl::StrCat("POST ", endpoint.url.path, request.chat ? "/v1/chat/completions" : "/v1/completions",
                   " HTTP/1.1\r\nHost: ", endpoint.authority,
                   "\r\nContent-Type: application/json\r\nContent-Length: ", request.body.size(),
                   "\r\nx-request-id: ", request.name, "\r\n");
  if (!endpoint.api_key.empty()) absl::StrAppend(&head, "Authorization: Bearer ", endpoint.api_key, "\r\n");
  return head + "\r\n";
}

}  // namespace

class HttpBridge::Impl {
 public:
  explicit Impl(const UpstreamTimeouts& timeouts) : upstream_(loop_, timeouts, counters_) { loop_.Start(); }
  ~Impl() {
    loop_.Run([this] {
      for (auto& [id, relay] : relays_) relay->Cancel();
      relays_.clear();
      upstream_.Shutdown();
    });
    loop_.Stop();
    loop_.Join();
  }

  uint64_t Start(BridgedRequest request, std::shared_ptr<ExchangeSink> sink) {
    const uint64_t id = next_id_.fetch_add(1);
    auto relay = std::make_shared<Relay>(*this, id, std::move(request), std::move(sink));
    loop_.Post([this, id, relay] {
      relays_[id] = relay;
      relay->Begin(upstream_);
    });
    return id;
  }
  void Cancel(uint64_t id) {
    loop_.Post([this, id] {
      const auto it = relays_.find(id);
      if (it == relays_.end()) return;
      it->second->Cancel();
      relays_.erase(it);
    });
  }
  void Post(std::function<void()> task) { loop_.Post(std::move(task)); }

 private:
  // One request on the loop. Shared by the table and by the task that brings it there.
  class Relay final : public AnswerSink {
   public:
    Relay(Impl& bridge, uint64_t id, BridgedRequest request, std::shared_ptr<ExchangeSink> sink)
        : bridge_(bridge),
          id_(id),
          request_(std::move(request)),
          sink_(std::move(sink)),
          head_(HeadOf(request_)) {}

    void Begin(Upstream& upstream) {
      attempt_ =
          upstream.Start({.id = request_.id,
                          .endpoint = request_.endpoint,
                          .name = request_.name,
                          .head = head_,
                          .body = request_.body,
                          .first_byte = request_.first_byte,
                          .route = request_.chat ? GenerationRoute::kChat : GenerationRoute::kCompletions},
                         *this);
    }
    void Cancel() {
      if (attempt_ != nullptr) std::exchange(attempt_, nullptr)->Cancel();
    }

   private:
    void OnAdmitted(const AdmittedReport&) override {}
    void OnHead(const AnswerHead& head) override {
      status_ = head.status;
      stream_ = head.status < 300 && IsEventStream(head.fields);
    }
    void OnBody(const AnswerBytes& bytes) override {
      for (const std::string_view piece : bytes.data) {
        if (stream_) {
          scanner_.Feed(piece, [this](const net::SseEvent& event) { OnSse(event.data); });
        } else if (collected_.size() + piece.size() <= kMaxCollected) {
          collected_.append(piece);
        }
      }
    }
    void OnSse(std::string_view data) {
      if (errored_ || data == "[DONE]") return;
      Tell(ReadOpenAiAnswer(data, usage_));
    }
    void OnEnd(const std::optional<UsageReport>&) override {
      attempt_ = nullptr;
      if (status_ >= 400) {
        Tell({ReadOpenAiError(status_, collected_)});
      } else if (!stream_) {
        Tell(ReadOpenAiAnswer(collected_, usage_));
      }
      if (!errored_) {
        v1::GenerateResponse last;
        *last.mutable_usage() = usage_;
        sink_->OnEvent(std::move(last));
      }
      bridge_.End(id_);
    }
    void OnFailed(const UpstreamFailure& failure) override {
      attempt_ = nullptr;
      const bool late = failure.outcome == OutcomeClass::kTimeout;
      if (!errored_) sink_->OnBroken({.what = failure.what, .any_delta = any_delta_, .late = late});
      bridge_.End(id_);
    }
    void Tell(std::vector<v1::GenerateResponse> events) {
      for (v1::GenerateResponse& event : events) {
        errored_ = event.has_error();
        any_delta_ |= event.has_delta();
        sink_->OnEvent(std::move(event));
        if (errored_) return;
      }
    }

    Impl& bridge_;
    const uint64_t id_;
    const BridgedRequest request_;
    const std::shared_ptr<ExchangeSink> sink_;
    const std::string head_;
    Attempt* attempt_ = nullptr;
    int status_ = 0;
    bool stream_ = false;
    bool errored_ = false;
    bool any_delta_ = false;
    net::SseScanner scanner_;
    std::string collected_;
    v1::Usage usage_ = UnknownUsage();
  };

  // The relay is on the stack: it ends with the task.
  void End(uint64_t id) {
    loop_.Post([this, id] { relays_.erase(id); });
  }

  HttpUpstreamCounters counters_;
  net::EventLoop loop_;
  HttpUpstream upstream_;
  std::atomic<uint64_t> next_id_{1};
  std::map<uint64_t, std::shared_ptr<Relay>> relays_;  // loop thread
};

HttpBridge::HttpBridge(const UpstreamTimeouts& timeouts) : impl_(std::make_unique<Impl>(timeouts)) {}
HttpBridge::~HttpBridge() = default;
uint64_t HttpBridge::Start(BridgedRequest request, std::shared_ptr<ExchangeSink> sink) {
  return impl_->Start(std::move(request), std::move(sink));
}
void HttpBridge::Cancel(uint64_t id) { impl_->Cancel(id); }
void HttpBridge::Post(std::function<void()> task) { impl_->Post(std::move(task)); }

}  // namespace kvring::router
