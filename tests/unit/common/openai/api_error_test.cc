#include "common/openai/api_error.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "common/utf8.h"

namespace kvring::openai {
namespace {

TEST(ApiError, Json_HasTheFourFields_NullWhereEmpty) {
  const ApiError error{400, "invalid_request_error", "", "messages", "a \"b\""};
  const auto json = boost::json::parse(error.ToJson()).at("error").as_object();
  EXPECT_EQ(json.at("message"), "a \"b\"");
  EXPECT_EQ(json.at("type"), "invalid_request_error");
  EXPECT_EQ(json.at("param"), "messages");
  EXPECT_TRUE(json.at("code").is_null());
}

// SMP-09
TEST(ApiError, ContextLength_NamesLimitPromptAndRequest_SMP_09) {
  const ApiError error = ContextLengthExceeded("messages", 4097, 3120, 1000);
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "messages");
  for (const char* part : {"4097", "3120", "1000", "4120"})
    EXPECT_NE(error.message.find(part), std::string::npos) << part;
}

TEST(ApiError, HttpAndStatusCodes_GoBothWays) {
  for (int http : {400, 401, 403, 404, 429, 499, 501, 503, 504, 500})
    EXPECT_EQ(HttpOfStatusCode(StatusCodeOfHttp(http)), http);
}

TEST(ApiError, InternalStatus_ShowsNothingOfTheInside) {
  const ApiError error = FromStatus(absl::InternalError("secret path /x"));
  EXPECT_EQ(error.http_status, 500);
  EXPECT_EQ(error.message.find("secret"), std::string::npos);
  EXPECT_EQ(FromStatus(absl::InvalidArgumentError("bad n")).message, "bad n");
}

// GRP-09: what travels is percent-encoded; the text is cut so that the encoded form stays within 4 KiB, at a
// character's border.
TEST(ApiError, GrpcStatusText_IsBoundedAsItTravels_GRP_09) {
  ApiError error;
  for (const char* unit : {"a", "\u00E9", "\U0001F600", "%", "\xFF"}) {
    error.message.clear();
    while (error.message.size() < 200 << 10) error.message += unit;
    const std::string text = GrpcStatusText(error);
    size_t encoded = 0;
    for (const char c : text) encoded += c >= 0x20 && c <= 0x7E && c != '%' ? 1 : 3;
    EXPECT_LE(encoded, 4096u) << unit;
    EXPECT_GT(encoded, 4000u) << unit;
    EXPECT_TRUE(IsValidUtf8(text)) << unit;
  }
}

}  // namespace
}  // namespace kvring::openai
