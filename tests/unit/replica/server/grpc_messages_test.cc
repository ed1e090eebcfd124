#include "replica/server/grpc_messages.h"

#include <gtest/gtest.h>

#include "replica/server/replica_admin.h"

namespace kvring::replica {
namespace {

v1::GenerateRequest TextRequest() {
  v1::GenerateRequest message;
  message.set_text("hello");
  return message;
}

TEST(GrpcMessagesTest, PriorityAndRetention_AreRead) {
  v1::GenerateRequest message = TextRequest();
  message.set_priority(3);
  message.mutable_cache_retention()->set_class_(v1::CacheRetention::HIGH);
  message.mutable_cache_retention()->set_ttl_seconds(30);
  openai::GenerationRequest request;
  ASSERT_FALSE(ReadGenerateRequest(message, request).has_value());
  EXPECT_EQ(request.priority, 3);
  EXPECT_EQ(request.cache_retention.cache_class, openai::CacheClass::kHigh);
  EXPECT_EQ(request.cache_retention.ttl_s, 30);
}

// The message's fields go before those of a body inside it; what it does not set is the body's.
TEST(GrpcMessagesTest, FieldsBesideABody_OverrideIt) {
  v1::GenerateRequest message;
  message.mutable_openai_body()->set_route("/v1/completions");
  message.mutable_openai_body()->set_body(
      R"({"prompt":"x","priority":5,"cache_retention":{"class":"low"},"cache_salt":"a"})");
  openai::GenerationRequest request;
  ASSERT_FALSE(ReadGenerateRequest(message, request).has_value());
  EXPECT_EQ(request.priority, 5);
  EXPECT_EQ(request.cache_retention.cache_class, openai::CacheClass::kLow);
  message.set_priority(-1);
  message.mutable_cache_retention()->set_class_(v1::CacheRetention::PINNED);
  message.mutable_cache_retention()->set_ttl_seconds(1);
  openai::GenerationRequest again;
  ASSERT_FALSE(ReadGenerateRequest(message, again).has_value());
  EXPECT_EQ(again.priority, -1);
  EXPECT_EQ(again.cache_retention.cache_class, openai::CacheClass::kPinned);
}

TEST(GrpcMessagesTest, WrongRetention_IsNamed) {
  openai::GenerationRequest request;
  v1::GenerateRequest message = TextRequest();
  message.mutable_cache_retention()->set_class_(v1::CacheRetention::PINNED);
  EXPECT_EQ(ReadGenerateRequest(message, request)->param, "cache_retention.ttl_s");
  message.mutable_cache_retention()->set_ttl_seconds(4'000'000'000);
  EXPECT_EQ(ReadGenerateRequest(message, request)->param, "cache_retention.ttl_s");
  message.mutable_cache_retention()->set_class_(static_cast<v1::CacheRetention::Class>(9));
  EXPECT_EQ(ReadGenerateRequest(message, request)->param, "cache_retention.class");
}

TEST(ReplicaAdminTest, OnlyLoopbackPeersAreLocal) {
  for (const char* peer : {"ipv4:127.0.0.1:5000", "ipv6:[::1]:5000", "ipv6:%5B::1%5D:5000", "unix:/tmp/x"})
    EXPECT_TRUE(IsLoopbackPeer(peer)) << peer;
  for (const char* peer : {"ipv4:10.0.0.1:5000", "ipv6:[fe80::1]:5000", "ipv4:128.127.0.1:1", ""})
    EXPECT_FALSE(IsLoopbackPeer(peer)) << peer;
}

}  // namespace
}  // namespace kvring::replica
