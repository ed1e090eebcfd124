#include "router/discovery/membership.h"

#include <gtest/gtest.h>

#include "common/runtime/clock.h"

namespace kvring::router {
namespace {

constexpr Epoch kFirstEpoch{11};
constexpr Epoch kSecondEpoch{22};

class MembershipTest : public ::testing::Test {
 protected:
  RouterAccess Access() {
    return [this](absl::FunctionRef<void(Router&)> work) {
      absl::MutexLock lock(&mutex_);
      work(*router_);
    };
  }
  std::vector<ReplicaView> Views() {
    absl::MutexLock lock(&mutex_);
    return router_->Replicas(Now());
  }
  void With(const std::function<void(Router&)>& work) {
    absl::MutexLock lock(&mutex_);
    work(*router_);
  }

  absl::Mutex mutex_;
  std::unique_ptr<Router> router_ = Router::Create({.policy = "round-robin", .seed = 1});
};

TEST_F(MembershipTest, Static_OneSpellingPerPlace_BadOnesNamed) {
  Membership membership(Access());
  ASSERT_TRUE(membership
                  .SetStatic({{.url = "http://127.0.0.1:8001/"},
                              {.url = "HTTP://127.0.0.1:8001"},
                              {.url = "grpc://127.0.0.1:9001"}})
                  .ok());
  ASSERT_EQ(Views().size(), 2u);
  EXPECT_EQ(Views()[0].url, "http://127.0.0.1:8001");
  const absl::Status bad =
      membership.SetStatic({{.url = "http://127.0.0.1:8002"}, {.url = "ftp://127.0.0.1:1"}});
  EXPECT_NE(bad.message().find("backends[1].url"), absl::string_view::npos) << bad;
  EXPECT_EQ(Views().size(), 2u);
}

TEST_F(MembershipTest, Static_SetAgain_FollowsTheList_AndLeavesOthersAlone) {
  Membership membership(Access());
  ASSERT_TRUE(
      membership.SetStatic({{.url = "http://127.0.0.1:8001"}, {.url = "http://127.0.0.1:8002"}}).ok());
  ASSERT_TRUE(membership.Register("127.0.0.1:9001", kFirstEpoch, {"m"}).ok());
  With([](Router& router) { router.AddReplica({.url = "http://127.0.0.1:8009"}, Now()); });
  const ReplicaId kept = Views()[1].id;
  ASSERT_TRUE(
      membership.SetStatic({{.url = "http://127.0.0.1:8002", .weight = 3}, {.url = "http://127.0.0.1:8003"}})
          .ok());
  std::vector<std::string> urls;
  for (const ReplicaView& view : Views()) urls.push_back(view.url);
  EXPECT_EQ(urls, (std::vector<std::string>{"http://127.0.0.1:8002", "grpc://127.0.0.1:9001",
                                            "http://127.0.0.1:8009", "http://127.0.0.1:8003"}));
  EXPECT_EQ(Views()[0].id, kept);
  EXPECT_EQ(Views()[0].weight, 3);
  EXPECT_FALSE(membership.SetStatic({{.url = "ftp://x"}}).ok());
  EXPECT_EQ(Views().size(), 4u);
}

TEST_F(MembershipTest, Register_AddsAGrpcMember_AndRefusesWhatCannotBeReached) {
  Membership membership(Access());
  EXPECT_EQ(*membership.Register("127.0.0.1:9001", kFirstEpoch, {"m"}), 3000u);
  ASSERT_EQ(Views().size(), 1u);
  EXPECT_EQ(Views()[0].url, "grpc://127.0.0.1:9001");
  EXPECT_EQ(Views()[0].models, std::vector<std::string>{"m"});
  EXPECT_NE(membership.Register("nowhere", kFirstEpoch, {}).status().message().find("address"),
            absl::string_view::npos);
  EXPECT_FALSE(membership.Register("127.0.0.1:0", kFirstEpoch, {}).ok());
  EXPECT_NE(membership.Register("127.0.0.1:9002", Epoch{0}, {}).status().message().find("epoch"),
            absl::string_view::npos);
  EXPECT_EQ(Views().size(), 1u);
}

TEST_F(MembershipTest, NewEpoch_IsToldOnce_AndKeepsTheMember) {
  Membership membership(Access());
  ASSERT_TRUE(membership.Register("127.0.0.1:9001", kFirstEpoch, {"m"}).ok());
  const ReplicaId id = Views()[0].id;
  With([&](Router& r) {
    r.OnReplicaFacts(id,
                     {.epoch = kFirstEpoch,
                      .models = {"m"},
                      .kv_tokens = 64,
                      .kv_source = CapacitySource::kRegistered,
                      .block_size = 16},
                     Now());
  });
  ASSERT_TRUE(membership.Register("127.0.0.1:9001", kSecondEpoch, {"m"}).ok());
  ASSERT_EQ(Views().size(), 1u);
  EXPECT_EQ(Views()[0].id, id);
  EXPECT_EQ(Views()[0].epoch, kSecondEpoch);
}

TEST_F(MembershipTest, LeaseOver_RemovedOnlyWhileProbesFail) {
  const std::string up = "grpc://127.0.0.1:9001";
  With([&](Router& r) {
    r.OnReplicaFacts(r.AddReplica({.url = up}, Now()), {.epoch = kFirstEpoch, .models = {"m"}}, Now());
  });
  Membership membership(Access(), Duration(1));
  ASSERT_TRUE(membership.Register("127.0.0.1:9001", kFirstEpoch, {"m"}).ok());
  ASSERT_TRUE(membership.Register("127.0.0.1:9002", kFirstEpoch, {"m"}).ok());  // no contact yet
  membership.ExpireLeases();
  ASSERT_EQ(Views().size(), 1u);
  EXPECT_EQ(Views()[0].url, up);
  With([&](Router& r) {
    for (int i = 0; i < 3; ++i) r.OnProbe(r.FindReplica(up)->id, false, Now());
  });
  membership.ExpireLeases();
  EXPECT_TRUE(Views().empty());
}

TEST_F(MembershipTest, StaticBackend_HasNoLease) {
  Membership membership(Access(), Duration(1));
  ASSERT_TRUE(membership.SetStatic({{.url = "http://127.0.0.1:8001"}}).ok());
  membership.ExpireLeases();
  EXPECT_EQ(Views().size(), 1u);
}

TEST_F(MembershipTest, Deregister_RemovesItsOwnLifeOnly) {
  Membership membership(Access());
  ASSERT_TRUE(membership.Register("127.0.0.1:9001", kSecondEpoch, {}).ok());
  membership.Deregister("127.0.0.1:9001", kFirstEpoch);
  EXPECT_EQ(Views().size(), 1u);
  membership.Deregister("127.0.0.1:9001", kSecondEpoch);
  EXPECT_TRUE(Views().empty());
}

}  // namespace
}  // namespace kvring::router
