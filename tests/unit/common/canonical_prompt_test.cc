#include "common/canonical_prompt.h"

#include <gtest/gtest.h>

namespace kvring {
namespace {

TEST(CanonicalPrompt, Layout_GoldenVector) {
  CanonicalPrompt prompt;
  prompt.AddTools(R"([{"t":1}])");
  prompt.BeginMessage("system");
  prompt.AddText("S");
  prompt.EndMessage();
  prompt.BeginMessage("user");
  const size_t content = prompt.size();
  prompt.AddText("hi");
  prompt.AddOpaque(R"({"type":"image_url"})");
  prompt.EndMessage();
  EXPECT_EQ(prompt.bytes(), "[{\"t\":1}]\x1Esystem\x1FS\x1Euser\x1Fhi\x1D{\"type\":\"image_url\"}\x1E");
  EXPECT_EQ(prompt.bytes().substr(content, 2), "hi");
}

}  // namespace
}  // namespace kvring
