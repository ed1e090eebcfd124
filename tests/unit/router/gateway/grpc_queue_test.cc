// Calls of the gRPC front that wait until a replica has room; case ids in the names.
#include <gtest/gtest.h>

#include <list>
#include <thread>

#include "absl/synchronization/notification.h"
#include "kvring/v1/inference.grpc.pb.h"
#include "router/gateway/grpc_front.h"
#include "tests/unit/eventually.h"
#include "tests/unit/router/gateway/grpc_scripted_replica.h"

namespace kvring::router {
namespace {

using std::chrono::milliseconds;
using test::ScriptedReplica;

// A replica that keeps the first request until the test says so.
class GrpcQueueTest : public ::testing::Test {
 protected:
  ~GrpcQueueTest() override {
    if (!go_.HasBeenNotified()) go_.Notify();
    for (Call& call : calls_) call.thread.join();
    if (front_) front_->Stop(Duration(0));
  }
  void Start(const AdmissionRules& admission) {
    guard_ = std::make_unique<RouterGuard>(Router::Create({.policy = "round-robin", .admission = admission}));
    guard_->With([&](Router& router) { router.AddReplica({.url = replica_.url(), .models = {"m"}}, Now()); });
    fleet_ = std::make_unique<GrpcFleet>(*guard_, ExchangeOptions{.probe_interval = milliseconds(50)});
    auto front = GrpcFront::Start({}, *guard_, *fleet_, metrics_, {});
    ASSERT_TRUE(front.ok()) << front.status();
    front_ = *std::move(front);
    stub_ =
        v1::Inference::NewStub(grpc::CreateChannel(front_->address(), grpc::InsecureChannelCredentials()));
    ASSERT_TRUE(Eventually([&] { return View().state == ReplicaState::kUp; }));
  }
  struct Call {
    grpc::ClientContext context;
    grpc::Status status;
    int deltas = 0;
    std::thread thread;
  };
  Call& Send() {
    Call& call = calls_.emplace_back();
    call.thread = std::thread([this, &call] {
      v1::GenerateRequest request;
      request.set_text("hello");
      auto reader = stub_->Generate(&call.context, request);
      for (v1::GenerateResponse event; reader->Read(&event);) call.deltas += event.has_delta() ? 1 : 0;
      call.status = reader->Finish();
    });
    return call;
  }
  ReplicaView View() {
    return guard_->With([](Router& router) { return router.Replicas(Now())[0]; });
  }
  QueueStats Stats() {
    return guard_->With([](Router& router) { return router.queue_stats(); });
  }
  void Join() {
    for (Call& call : calls_) call.thread.join();
    all_.splice(all_.end(), calls_);
  }

  absl::Notification go_;
  ScriptedReplica replica_{[this](const ScriptedReplica::Request& request) {
    go_.WaitForNotificationWithTimeout(absl::Seconds(20));
    test::AnswerShort(request);
  }};
  MetricRegistry metrics_;
  std::unique_ptr<RouterGuard> guard_;
  std::unique_ptr<GrpcFleet> fleet_;
  std::unique_ptr<GrpcFront> front_;
  std::unique_ptr<v1::Inference::Stub> stub_;
  std::list<Call> calls_;
  std::list<Call> all_;
};

TEST_F(GrpcQueueTest, GRP08c_CancelledInQueue_IsNeverDispatched_TheOthersAreServed) {
  Start({.max_in_flight_per_replica = 1, .queue_length = 2});
  Send();
  ASSERT_TRUE(Eventually([&] { return View().in_flight == 1; }));
  Call& cancelled = Send();
  ASSERT_TRUE(Eventually([&] { return Stats().waiting == 1; }));
  Call& served = Send();
  ASSERT_TRUE(Eventually([&] { return Stats().waiting == 2; }));
  Call& full = Send();
  ASSERT_TRUE(Eventually([&] { return Stats().full == 1; }));
  cancelled.context.TryCancel();
  ASSERT_TRUE(Eventually([&] { return Stats().cancelled == 1; }));
  go_.Notify();
  Join();
  EXPECT_EQ(cancelled.status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(served.status.ok()) << served.status.error_message();
  EXPECT_GT(served.deltas, 0);
  EXPECT_EQ(full.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto& trailers = full.context.GetServerTrailingMetadata();
  ASSERT_TRUE(trailers.contains("x-kvring-reason"));
  EXPECT_EQ(trailers.find("x-kvring-reason")->second, "queue_full");
  EXPECT_TRUE(trailers.contains("retry-after"));
  EXPECT_EQ(View().requests, 2u);
  EXPECT_EQ(View().in_flight, 0);
  EXPECT_EQ(Stats().served, 1u);
  EXPECT_EQ(Stats().waiting, 0u);
}

TEST_F(GrpcQueueTest, HLT18c_WaitedTooLong_SaysSo) {
  Start({.max_in_flight_per_replica = 1, .queue_length = 2, .queue_timeout = milliseconds(50)});
  Send();
  ASSERT_TRUE(Eventually([&] { return View().in_flight == 1; }));
  Call& late = Send();
  ASSERT_TRUE(Eventually([&] { return Stats().waiting == 1; }));
  ASSERT_TRUE(Eventually([&] {  // the prober of an HTTP gateway does it in the live system
    guard_->With([](Router& router) { router.Tick(Now()); });
    return Stats().timed_out == 1;
  }));
  go_.Notify();
  Join();
  EXPECT_EQ(late.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(late.context.GetServerTrailingMetadata().find("x-kvring-reason")->second, "queue_timeout");
}

}  // namespace
}  // namespace kvring::router
