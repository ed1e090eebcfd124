#include "common/net/address.h"

#include <gtest/gtest.h>

namespace kvring::net {
namespace {

TEST(ParseAddress, GoodForms_GiveHostAndPort) {
  EXPECT_EQ(ParseAddress("127.0.0.1:8080").value(), (Address{"127.0.0.1", 8080}));
  EXPECT_EQ(ParseAddress("[::1]:0").value(), (Address{"::1", 0}));
  EXPECT_EQ(ParseAddress("replica-1.svc:65535").value(), (Address{"replica-1.svc", 65535}));
  EXPECT_EQ(ParseAddress("[::1]:80")->ToString(), "[::1]:80");
}

TEST(ParseAddress, BadForms_SayWhatIsWrong) {
  const std::pair<const char*, const char*> cases[] = {{"localhost", "port is missing"},
                                                       {":80", "host is empty"},
                                                       {"a:65536", "0 to 65535"},
                                                       {"a:x", "0 to 65535"},
                                                       {"::1:80", "host is empty"},
                                                       {"fe80::1:80", "needs brackets"},
                                                       {"[::1", "']' is missing"},
                                                       {"a b:80", "not allowed"},
                                                       {"", "host is empty"},
                                                       {"a:", "port is missing"},
                                                       {"[::1]80", "port must follow"}};
  for (const auto& [text, why] : cases) {
    const auto address = ParseAddress(text);
    ASSERT_FALSE(address.ok()) << text;
    EXPECT_NE(address.status().message().find(why), absl::string_view::npos)
        << text << ": " << address.status();
  }
}

TEST(ParseUrl, SchemePortAndPath_AreSplit) {
  const Url url = ParseUrl("HTTP://host:9001/base/v2/").value();
  EXPECT_EQ(url.scheme, "http");
  EXPECT_EQ(url.address, (Address{"host", 9001}));
  EXPECT_EQ(url.path, "/base/v2");
  EXPECT_EQ(ParseUrl("http://host")->address.port, 80);
  EXPECT_EQ(ParseUrl("https://host")->address.port, 443);
  EXPECT_FALSE(ParseUrl("grpc://host").ok());
  EXPECT_FALSE(ParseUrl("host:80").ok());
  EXPECT_FALSE(ParseUrl("http://user@host:80").ok());
  EXPECT_FALSE(ParseUrl("http://host:0").ok());
}

}  // namespace
}  // namespace kvring::net
