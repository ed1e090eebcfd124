// Over real sockets: a publisher and its replay endpoint as vLLM has them.
#include "router/events/kv_subscriber.h"

#include <gtest/gtest.h>
#include <zmq.h>

#include <thread>

#include "tests/unit/eventually.h"
#include "tests/unit/router/events/kv_messages.h"

namespace kvring::router {
namespace {

std::string BigEndian(uint64_t value) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

// XPUB in the place of PUB: it tells when the subscriber has come.
class Publisher {
 public:
  Publisher() {
    publish_ = Bind(ZMQ_XPUB, endpoint_);
    replay_ = Bind(ZMQ_ROUTER, replay_endpoint_);
  }
  ~Publisher() {
    zmq_close(publish_);
    zmq_close(replay_);
    zmq_ctx_term(context_);
  }

  /// 1: somebody subscribes; 0: somebody leaves.
  int AwaitSubscriber() {
    char subscription[64] = {-1};
    EXPECT_GT(zmq_recv(publish_, subscription, sizeof subscription, 0), 0);
    return subscription[0];
  }
  void Publish(uint64_t sequence, const std::string& payload) {
    const std::string number = BigEndian(sequence);
    zmq_send(publish_, "kv-events", 9, ZMQ_SNDMORE);
    zmq_send(publish_, number.data(), number.size(), ZMQ_SNDMORE);
    zmq_send(publish_, payload.data(), payload.size(), 0);
  }
  /// Waits for one request, answers with these from `first` on; returns the number that was asked for.
  uint64_t ServeReplay(uint64_t first, const std::vector<std::string>& payloads) {
    char client[64], asked[8];
    const int size = zmq_recv(replay_, client, sizeof client, 0);
    char empty[1];
    EXPECT_EQ(zmq_recv(replay_, empty, 1, 0), 0);
    EXPECT_EQ(zmq_recv(replay_, asked, 8, 0), 8);
    const auto send = [&](const std::string& number, const std::string& payload) {
      zmq_send(replay_, client, static_cast<size_t>(size), ZMQ_SNDMORE);
      zmq_send(replay_, "", 0, ZMQ_SNDMORE);
      zmq_send(replay_, number.data(), number.size(), ZMQ_SNDMORE);
      zmq_send(replay_, payload.data(), payload.size(), 0);
    };
    for (const std::string& payload : payloads) send(BigEndian(first++), payload);
    send(BigEndian(~uint64_t{0}), "");
    uint64_t number = 0;
    for (const char c : asked) number = number << 8 | static_cast<uint8_t>(c);
    return number;
  }

  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay() const { return replay_endpoint_; }

 private:
  void* Bind(int kind, std::string& endpoint) {
    void* socket = zmq_socket(context_, kind);
    const int timeout_ms = 10'000;
    zmq_setsockopt(socket, ZMQ_RCVTIMEO, &timeout_ms, sizeof timeout_ms);
    EXPECT_EQ(zmq_bind(socket, "tcp://127.0.0.1:*"), 0);
    char name[128];
    size_t size = sizeof name;
    zmq_getsockopt(socket, ZMQ_LAST_ENDPOINT, name, &size);
    endpoint = name;
    return socket;
  }

  void* context_ = zmq_ctx_new();
  std::string endpoint_, replay_endpoint_;
  void* publish_ = nullptr;
  void* replay_ = nullptr;
};

class KvSubscriberTest : public KvEventsTest {
 protected:
  Publisher publisher_;
  KvSubscriber subscriber_{Access()};
};

TEST_F(KvSubscriberTest, PFX_11_PFX_12_EventsArrive_GapsAreReplayed) {
  subscriber_.SetSources({{"http://a:1", publisher_.endpoint(), publisher_.replay(), ""}});
  publisher_.AwaitSubscriber();
  const auto first = Stored({1}, std::nullopt, Tokens(0, 16));
  const auto second = Stored({2}, 1, Tokens(16, 16));
  publisher_.Publish(0, first);
  EXPECT_TRUE(Eventually([&] { return Predicted(Tokens(0, 60)) == 16; }));
  publisher_.Publish(2, Stored({3}, 2, Tokens(32, 16)));
  EXPECT_EQ(publisher_.ServeReplay(1, {second, Stored({3}, 2, Tokens(32, 16))}), 1u);
  EXPECT_TRUE(Eventually([&] { return Predicted(Tokens(0, 60)) == 48; }));
  EXPECT_EQ(View().events.gaps, 1u);
}

TEST_F(KvSubscriberTest, WithoutReplay_AGapIsGivenUpAndSaid) {
  subscriber_.SetSources({{"http://a:1", publisher_.endpoint(), "", "kv"}});
  publisher_.AwaitSubscriber();
  publisher_.Publish(0, Stored({1}, std::nullopt, Tokens(0, 16)));
  publisher_.Publish(2, Cleared());
  publisher_.Publish(3, Stored({4}, std::nullopt, Tokens(300, 16)));
  EXPECT_TRUE(Eventually([&] { return Predicted(Tokens(300, 40)) == 16; }));
  EXPECT_EQ(Predicted(Tokens(0, 40)), 0);
  EXPECT_EQ(View().events.state, EventsState::kPartial);
}

TEST_F(KvSubscriberTest, SourceRemoved_IsLeft) {
  subscriber_.SetSources({{"http://a:1", publisher_.endpoint(), publisher_.replay(), ""}});
  EXPECT_EQ(publisher_.AwaitSubscriber(), 1);
  subscriber_.SetSources({});
  EXPECT_EQ(publisher_.AwaitSubscriber(), 0);
}

TEST(CheckKvEndpoint, SaysWhatIsWrong) {
  EXPECT_TRUE(CheckKvEndpoint("tcp://10.0.0.1:5557").ok());
  EXPECT_FALSE(CheckKvEndpoint("10.0.0.1:5557").ok());
  EXPECT_FALSE(CheckKvEndpoint("tcp://10.0.0.1").ok());
  EXPECT_FALSE(CheckKvEndpoint("tcp://*:5557").ok());
}

}  // namespace
}  // namespace kvring::router
