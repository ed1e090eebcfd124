// Where the bundled model is; tests that need it skip where it is not.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace kvring::replica {

/// The model's path, or nothing when it is not there.
inline std::string ModelPath() {
  const char* given = std::getenv("KVRING_MODEL");
  const char* home = std::getenv("HOME");
  std::string path = given != nullptr ? given : std::string(home != nullptr ? home : "");
  if (given == nullptr) path += "/.cache/kvring/SmolLM2-135M-Instruct.Q4_1.gguf";
  return std::ifstream(path).good() ? path : "";
}

}  // namespace kvring::replica

#define KVRING_SKIP_WITHOUT_MODEL()                                                               \
  if (::kvring::replica::ModelPath().empty()) {                                                   \
    GTEST_SKIP() << "the model file is absent: set KVRING_MODEL or put it under ~/.cache/kvring"; \
  }
