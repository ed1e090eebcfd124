// What the executor tests share: the bundled model, its reference answers, and a greedy run of several
// sequences through one executor in batches, with blocks drawn from a shuffled pool.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "replica/model/cpu_executor.h"
#include "tests/unit/replica/model/model_file.h"

namespace kvring::replica {

struct ReferenceAnswer {
  std::string name;
  std::vector<TokenId> prompt;
  std::vector<TokenId> greedy;
  std::vector<float> margins;  // best minus second logit, per generated token
  std::vector<std::pair<TokenId, float>> first_top5;
};

inline boost::json::value LoadTestJson(const std::string& name) {
  std::ifstream in(KVRING_SOURCE_DIR "/tests/unit/replica/model/testdata/" + name);
  std::stringstream text;
  text << in.rdbuf();
  return boost::json::parse(text.str());
}

/// Of the reference's generated tokens; a few of them do to have every access checked.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr size_t kGreedyTokens = 6;
#else
inline constexpr size_t kGreedyTokens = 64;
#endif

/// `greedy` is the key of the generated tokens.
inline ReferenceAnswer ParseAnswer(const boost::json::value& json, const char* greedy) {
  ReferenceAnswer answer;
  answer.name = json.at("name").as_string();
  for (const auto& id : json.at("prompt_ids").as_array()) answer.prompt.push_back(id.to_number<TokenId>());
  for (const auto& id : json.at(greedy).as_array()) answer.greedy.push_back(id.to_number<TokenId>());
  for (const auto& m : json.at("top2_margin").as_array()) answer.margins.push_back(m.to_number<float>());
  answer.greedy.resize(std::min(answer.greedy.size(), kGreedyTokens));
  answer.margins.resize(answer.greedy.size());
  for (const auto& top : json.at("top5_first").as_array()) {
    answer.first_top5.emplace_back(top.at(0).to_number<TokenId>(), top.at(1).to_number<float>());
  }
  return answer;
}

inline std::vector<ReferenceAnswer> LoadReferenceAnswers() {
  std::vector<ReferenceAnswer> answers;
  const boost::json::value root = LoadTestJson("smollm2_greedy_fp32.json");
  for (const auto& prompt : root.at("prompts").as_array()) {
    answers.push_back(ParseAnswer(prompt, "greedy64"));
  }
  return answers;
}

/// A sequence that is being computed.
struct Running {
  std::vector<TokenId> tokens;  // prompt and what was appended
  std::vector<BlockId> table;
  int32_t computed = 0;
  std::vector<float> logits;  // of the last token computed
  int32_t freed = 0;          // table entries given back because the window has passed them
};

class GreedyRun {
 public:
  explicit GreedyRun(Executor& executor, uint64_t seed = 1) : executor_(executor) {
    for (int32_t b = 0; b < executor.limits().num_blocks; ++b) free_.push_back(BlockId{b});
    Random random(seed);
    for (size_t i = free_.size(); i > 1; --i) std::swap(free_[i - 1], free_[random.Below(i)]);
  }

  Running Start(const std::vector<TokenId>& prompt) { return {prompt, {}, 0, {}, 0}; }

  /// One step: up to chunk[i] pending tokens of each sequence, computed together.
  void Step(const std::vector<Running*>& sequences, const std::vector<int32_t>& chunks) {
    Batch batch;
    for (size_t i = 0; i < sequences.size(); ++i) {
      Running& s = *sequences[i];
      const auto pending = static_cast<int32_t>(s.tokens.size()) - s.computed;
      const int32_t count = std::min(pending, chunks[i]);
      GrowTable(s, s.computed + count);
      batch.steps.push_back(
          {SequenceId{i}, std::span(s.tokens).subspan(s.computed, count), s.computed, s.table, count - 1});
      s.computed += count;
    }
    StepOutput output;
    ASSERT_TRUE(executor_.Execute(batch, output).ok());
    const auto vocab = static_cast<size_t>(executor_.limits().vocab_size);
    ASSERT_EQ(output.logits.size(), sequences.size() * vocab);
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto row = output.logits.subspan(i * vocab, vocab);
      sequences[i]->logits.assign(row.begin(), row.end());
    }
  }

  /// Feeds all pending tokens in chunks.
  void Prefill(Running& sequence, int32_t chunk) {
    while (sequence.computed < static_cast<int32_t>(sequence.tokens.size())) Step({&sequence}, {chunk});
  }

  /// Gives back the blocks that no later token of the sequence sees, as an engine does under a window; their
  /// entries become invalid. Returns the blocks still held.
  int32_t FreeBehind(Running& s, int32_t window) {
    const int32_t first_seen = std::max(0, s.computed - window + 1);
    for (; (s.freed + 1) * executor_.limits().block_size <= first_seen; ++s.freed) {
      free_.insert(free_.begin(), std::exchange(s.table[static_cast<size_t>(s.freed)], BlockId{1 << 30}));
    }
    return static_cast<int32_t>(s.table.size()) - s.freed;
  }

 private:
  void GrowTable(Running& s, int32_t tokens) {
    while (static_cast<int32_t>(s.table.size()) * executor_.limits().block_size < tokens) {
      s.table.push_back(free_.back());
      free_.pop_back();
    }
  }

  Executor& executor_;
  std::vector<BlockId> free_;
};

inline TokenId BestToken(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace kvring::replica
