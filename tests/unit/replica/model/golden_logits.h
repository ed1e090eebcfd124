// Logits of the tiny random models of each family, as transformers computed them (testdata/make_golden.py).
// Test only.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/replica/model/greedy_run.h"

namespace kvring::replica {

inline std::string FolderOf(const std::string& family) {
  return KVRING_SOURCE_DIR "/tests/unit/replica/model/testdata/families/" + family;
}

struct Golden {
  std::vector<TokenId> ids;
  std::vector<std::pair<int32_t, std::vector<float>>> logits;  // by position
};

inline Golden LoadGolden(const std::string& family) {
  const boost::json::value root = LoadTestJson("families/" + family + "/golden.json");
  Golden golden;
  for (const auto& id : root.at("ids").as_array()) golden.ids.push_back(id.to_number<TokenId>());
  for (const auto& [position, row] : root.at("logits").as_object()) {
    std::vector<float> logits;
    for (const auto& value : row.as_array()) logits.push_back(value.to_number<float>());
    golden.logits.emplace_back(std::stoi(std::string(position)), std::move(logits));
  }
  return golden;
}

// check(logit, golden logit) for all of them; tokens are fed in chunks, cut so that each golden position ends
// one.
inline void ForEachLogit(Executor& executor, const Golden& golden, int32_t chunk,
                         const std::function<void(float, float)>& check) {
  GreedyRun run(executor, 5);
  Running s = run.Start({});
  for (const auto& [position, expected] : golden.logits) {
    s.tokens.assign(golden.ids.begin(), golden.ids.begin() + position + 1);
    run.Prefill(s, chunk);
    ASSERT_EQ(s.logits.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) check(s.logits[i], expected[i]);
  }
}

}  // namespace kvring::replica
