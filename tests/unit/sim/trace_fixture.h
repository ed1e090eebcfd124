// Files that a test writes, and the trace that stands beside the tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>

namespace kvring::sim {

inline std::string MooncakePath() {
  return std::string(KVRING_SOURCE_DIR) + "/tests/unit/sim/data/mooncake_conversation_trace.jsonl.zst";
}

inline std::string WriteTestFile(const std::string& name, const std::string& bytes) {
  const std::string path = testing::TempDir() + name;
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  EXPECT_NE(file, nullptr);
  EXPECT_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
  std::fclose(file);
  return path;
}

}  // namespace kvring::sim
