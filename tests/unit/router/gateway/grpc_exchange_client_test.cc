#include <gtest/gtest.h>

#include "common/block_hash.h"
#include "router/gateway/exchange_client.h"
#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/grpc_scripted_replica.h"

namespace kvring::router {
namespace {

using std::chrono::seconds;

using test::ScriptedReplica;

class Listener final : public ExchangeListener {
 public:
  void OnInfo(const v1::ReplicaInfo& info) override {
    absl::MutexLock lock(&mutex);
    infos.push_back(info);
  }
  void OnLoad(const v1::LoadReport& load) override {
    absl::MutexLock lock(&mutex);
    running = load.running();
  }
  void OnCacheSnapshot(const v1::CacheSnapshot&) override {}
  void OnCacheEvents(const v1::CacheEvents& events) override {
    absl::MutexLock lock(&mutex);
    cache_events += events.events_size();
  }
  void OnDown(std::string_view why) override {
    absl::MutexLock lock(&mutex);
    downs.emplace_back(why);
  }
  void OnProbe(bool ok) override { ++(ok ? good : bad); }

  std::string LastDown() {
    absl::MutexLock lock(&mutex);
    return downs.empty() ? "" : downs.back();
  }
  size_t Infos() {
    absl::MutexLock lock(&mutex);
    return infos.size();
  }

  absl::Mutex mutex;
  std::vector<v1::ReplicaInfo> infos;
  std::vector<std::string> downs;
  int running = 0;
  int cache_events = 0;
  std::atomic<int> good{0};
  std::atomic<int> bad{0};
};

struct Sink final : ExchangeSink {
  void OnEvent(v1::GenerateResponse event) override {
    absl::MutexLock lock(&mutex);
    ended = event.has_usage() || event.has_error();
    events.push_back(std::move(event));
  }
  void OnBroken(const BrokenCall& call) override {
    absl::MutexLock lock(&mutex);
    broken = call.what;
    after_delta = call.any_delta;
    late = call.late;
    ended = true;
  }
  bool Ended() {
    absl::MutexLock lock(&mutex);
    return ended;
  }
  size_t Events() {
    absl::MutexLock lock(&mutex);
    return events.size();
  }

  absl::Mutex mutex;
  std::vector<v1::GenerateResponse> events;
  std::string broken;
  bool after_delta = false;
  bool late = false;
  bool ended = false;
};

ExchangeOptions Fast(const std::string& address) {
  return {.address = address,
          .first_retry = std::chrono::milliseconds(10),
          .last_retry = std::chrono::milliseconds(50),
          .probe_interval = std::chrono::milliseconds(20),
          .probe_timeout = std::chrono::milliseconds(100)};
}

v1::GenerateRequest Text(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  return request;
}

TEST(ExchangeClient, Requests_ShareOneStreamAndKeepTheirEventsApart) {
  ScriptedReplica replica([](const ScriptedReplica::Request& request) {
    request.Send(test::Delta(request.start.request().text(), "stop"));
    request.Send(test::Usage(1, 1, 0));
  });
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  ASSERT_TRUE(Eventually([&] { return client.connected(); }));
  std::vector<std::shared_ptr<Sink>> sinks;
  for (int i = 0; i < 100; ++i) {
    sinks.push_back(std::make_shared<Sink>());
    ASSERT_TRUE(client.Start(Text(absl::StrCat("t", i)), {}, sinks.back()).ok());
  }
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Eventually([&] { return sinks[i]->Ended(); }));
    ASSERT_EQ(sinks[i]->Events(), 2u);
    EXPECT_EQ(sinks[i]->events[0].delta().text(), absl::StrCat("t", i));
  }
  EXPECT_EQ(replica.streams(), 1);
  EXPECT_EQ(client.in_flight(), 0u);
}

TEST(ExchangeClient, Grp05_RequestDuringTheDialWaitsForIt) {
  ScriptedReplica replica(test::AnswerShort);
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(client.Start(Text("x"), {}, sink).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Ended(); }));
  EXPECT_EQ(sink->broken, "");
}

TEST(ExchangeClient, Grp04_ComesBackWithoutAnyRequest) {
  ScriptedReplica replica(test::AnswerShort);
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  ASSERT_TRUE(Eventually([&] { return client.connected(); }));
  replica.Stop();
  ASSERT_TRUE(Eventually([&] { return !client.connected() && !listener.LastDown().empty(); }));
  EXPECT_EQ(client.Start(Text("x"), {}, std::make_shared<Sink>()).ok() && client.connected(), false);
  replica.info().set_epoch(8);
  replica.Start();
  ASSERT_TRUE(Eventually([&] { return client.connected(); }));
  ASSERT_TRUE(Eventually([&] { return listener.Infos() == 2; }));
  EXPECT_EQ(listener.infos[1].epoch(), 8u);
  auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(client.Start(Text("x"), {}, sink).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Ended(); }));
  EXPECT_EQ(sink->Events(), 4u);
}

TEST(ExchangeClient, Pfx10_OtherHashIsRefusedLoudly) {
  ScriptedReplica replica(test::AnswerShort);
  replica.info().set_hash_probe(HashProbe() + 1);
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  ASSERT_TRUE(Eventually([&] { return listener.LastDown().find("hash probe") != std::string::npos; }));
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(listener.Infos(), 0u);
}

TEST(ExchangeClient, Pfx10_ProbeIsTheGoldenValue) {
  // Not computed here: the value that any build on any machine must give.
  EXPECT_EQ(absl::StrCat(absl::Hex(HashProbe(), absl::kZeroPad16)), "b49e91f70580fd02");
}

TEST(ExchangeClient, Grp06_TooLargeIsRefusedAtOnce_NamingSizeAndLimit) {
  ScriptedReplica replica(test::AnswerShort);
  Listener listener;
  ExchangeOptions options = Fast(replica.address());
  options.max_message_bytes = 4 << 20;
  ExchangeClient client(options, listener);
  ASSERT_TRUE(Eventually([&] { return client.connected(); }));
  const auto started = client.Start(Text(std::string(5 << 20, 'x')), {}, std::make_shared<Sink>());
  EXPECT_EQ(started.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(started.status().message().find("4194304"), absl::string_view::npos);
  EXPECT_NE(started.status().message().find("52428"), absl::string_view::npos) << started.status();
  EXPECT_EQ(replica.requests(), 0);
  EXPECT_TRUE(client.connected());
}

TEST(ExchangeClient, Grp06_FiveMebibytesPassTheUsualLimit) {
  ScriptedReplica replica(test::AnswerShort);
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(client.Start(Text(std::string(5 << 20, 'x')), {}, sink).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Ended(); }));
  EXPECT_EQ(replica.last().request().text().size(), size_t{5} << 20);
}

TEST(ExchangeClient, Broken_TellsWhetherADeltaHadCome) {
  ScriptedReplica replica([](const ScriptedReplica::Request& request) {
    request.Send(test::Admitted(4, 0));
    if (request.start.request().text() == "begun") request.Send(test::Delta("a"));
  });
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  auto begun = std::make_shared<Sink>();
  auto waiting = std::make_shared<Sink>();
  ASSERT_TRUE(client.Start(Text("begun"), {}, begun).ok());
  ASSERT_TRUE(client.Start(Text("waiting"), {}, waiting).ok());
  ASSERT_TRUE(Eventually([&] { return begun->Events() == 2 && waiting->Events() == 1; }));
  replica.Stop();
  ASSERT_TRUE(Eventually([&] { return begun->Ended() && waiting->Ended(); }));
  EXPECT_TRUE(begun->after_delta);
  EXPECT_FALSE(waiting->after_delta);
  EXPECT_EQ(client.in_flight(), 0u);
}

TEST(ExchangeClient, Grp08_CancelAndTimeReachTheReplica) {
  ScriptedReplica replica([](const ScriptedReplica::Request& request) { request.Send(test::Delta("a")); });
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  auto sink = std::make_shared<Sink>();
  const auto id = client.Start(Text("x"), {.client_ms = 1234}, sink);
  ASSERT_TRUE(id.ok());
  ASSERT_TRUE(Eventually([&] { return sink->Events() == 1; }));
  EXPECT_EQ(replica.last().timeout_ms(), 1234u);
  client.Cancel(*id);
  client.Cancel(*id);
  ASSERT_TRUE(Eventually([&] { return replica.cancelled() == 1; }));
  EXPECT_EQ(client.in_flight(), 0u);
}

TEST(ExchangeClient, FrozenReplica_ProbesFail_WaitingRequestsCanBeTakenBack) {
  ScriptedReplica replica([](const ScriptedReplica::Request& request) {
    if (request.start.request().text() == "begun") request.Send(test::Delta("a"));
  });
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  ASSERT_TRUE(Eventually([&] { return listener.good > 0; }));
  auto begun = std::make_shared<Sink>();
  auto waiting = std::make_shared<Sink>();
  ASSERT_TRUE(client.Start(Text("begun"), {}, begun).ok());
  ASSERT_TRUE(client.Start(Text("waiting"), {}, waiting).ok());
  ASSERT_TRUE(Eventually([&] { return begun->Events() == 1; }));
  replica.frozen = true;
  ASSERT_TRUE(Eventually([&] { return listener.bad > 0; }));
  client.BreakWaiting("frozen");
  EXPECT_EQ(waiting->broken, "frozen");
  EXPECT_FALSE(begun->Ended());
  ASSERT_TRUE(Eventually([&] { return replica.cancelled() == 1; }));
  replica.frozen = false;
}

// Its probes are answered: only the request's own bounds show that it hangs.
TEST(ExchangeClient, HungReplica_RequestsAreGivenUpByTheirBounds_BeforeAndAfterTheFirstDelta) {
  ScriptedReplica replica([](const ScriptedReplica::Request& request) {
    request.Send(test::Admitted(40, 0));
    if (request.start.request().text() != "begun") return;
    request.Send(test::Delta("a"));
  });
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  ASSERT_TRUE(Eventually([&] { return client.connected(); }));
  const CallTimes times{.first_delta = seconds(10), .idle = seconds(20)};
  auto begun = std::make_shared<Sink>();
  auto waiting = std::make_shared<Sink>();
  auto patient = std::make_shared<Sink>();
  ASSERT_TRUE(client.Start(Text("begun"), times, begun).ok());
  ASSERT_TRUE(client.Start(Text("waiting"), times, waiting).ok());
  ASSERT_TRUE(client.Start(Text("patient"), {}, patient).ok());
  ASSERT_TRUE(Eventually([&] { return begun->Events() == 2 && patient->Events() == 1; }));
  client.ExpireLate(Now() + seconds(5));
  EXPECT_FALSE(waiting->Ended() || begun->Ended());
  client.ExpireLate(Now() + seconds(11));
  EXPECT_TRUE(waiting->Ended() && waiting->late && !waiting->after_delta);
  EXPECT_FALSE(begun->Ended());
  client.ExpireLate(Now() + seconds(21));
  EXPECT_TRUE(begun->Ended() && begun->late && begun->after_delta);
  EXPECT_FALSE(patient->Ended());
  EXPECT_TRUE(Eventually([&] { return replica.cancelled() == 2; }));
}

TEST(ExchangeClient, SilentReplica_IsCutAfterEnoughProbesAndDialledAnew) {
  ScriptedReplica replica(test::AnswerShort);
  Listener listener;
  ExchangeOptions options = Fast(replica.address());
  options.probes_until_cut = 2;
  ExchangeClient client(options, listener);
  ASSERT_TRUE(Eventually([&] { return client.connected(); }));
  replica.frozen = true;
  ASSERT_TRUE(Eventually([&] { return replica.streams() >= 2; }));
  EXPECT_NE(listener.LastDown().find("probes"), std::string::npos);
  replica.frozen = false;
}

TEST(ExchangeClient, LoadAndCacheEvents_ReachTheListener) {
  ScriptedReplica replica([](const ScriptedReplica::Request& request) {
    v1::ExchangeResponse message;
    message.mutable_load()->set_running(3);
    message.mutable_cache()->add_events()->set_block_hash(1);
    message.mutable_cache()->add_events()->set_block_hash(2);
    request.stream.Write(message);
    request.Send(test::Usage(1, 1, 0));
  });
  Listener listener;
  ExchangeClient client(Fast(replica.address()), listener);
  auto sink = std::make_shared<Sink>();
  ASSERT_TRUE(client.Start(Text("x"), {}, sink).ok());
  ASSERT_TRUE(Eventually([&] { return sink->Ended(); }));
  absl::MutexLock lock(&listener.mutex);
  EXPECT_EQ(listener.running, 3);
  EXPECT_EQ(listener.cache_events, 2);
}

TEST(ExchangeClient, Destroyed_WithRequestsRunning_TellsThem) {
  ScriptedReplica replica([](const ScriptedReplica::Request&) {});
  Listener listener;
  auto sink = std::make_shared<Sink>();
  {
    ExchangeClient client(Fast(replica.address()), listener);
    ASSERT_TRUE(client.Start(Text("x"), {}, sink).ok());
    ASSERT_TRUE(Eventually([&] { return replica.requests() == 1; }));
  }
  EXPECT_TRUE(sink->Ended());
}

}  // namespace
}  // namespace kvring::router
