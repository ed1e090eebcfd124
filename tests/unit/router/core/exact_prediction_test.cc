// Predicted cached tokens against a toy engine that really keeps token blocks: its tokenizer makes tokens of
// 1 to 8 bytes, its template adds special tokens without canonical bytes, its cache compares whole blocks of
// tokens from the start and always computes at least the last prompt token. Nothing is evicted.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>

#include "common/random.h"
#include "router/router.h"

namespace kvring::router {
namespace {

struct Tokens {
  std::vector<std::string> text;
  std::vector<uint32_t> ends;  // canonical byte offset where each token ends
};

class ToyTokenizer {
 public:
  static size_t Length(char first) { return 1 + MixBits(static_cast<unsigned char>(first)) % 8; }
  /// A token's length follows from its first byte, so a token depends on nothing after it.
  static void Words(std::string_view text, uint32_t at, Tokens& out) {
    while (!text.empty()) {
      const size_t length = std::min(Length(text[0]), text.size());
      Add(std::string(text.substr(0, length)), at += static_cast<uint32_t>(length), out);
      text.remove_prefix(length);
    }
  }
  /// `canonical` is whole records, then perhaps the beginning of the answer. Each record begins with a
  /// special token.
  static Tokens Chat(std::string_view canonical, uint32_t prelude) {
    Tokens out;
    for (uint32_t i = 0; i < prelude; ++i) Add("<prelude>", 0, out);
    uint32_t at = 0;
    while (at < canonical.size()) {
      Add("<start>", at, out);
      const size_t role_end = canonical.find('\x1f', at);
      const size_t record_end = std::min(canonical.find('\x1e', role_end), canonical.size());
      Words(canonical.substr(at, role_end - at), at, out);
      Add("\n", static_cast<uint32_t>(role_end + 1), out);
      Words(canonical.substr(role_end + 1, record_end - role_end - 1), static_cast<uint32_t>(role_end + 1),
            out);
      at = static_cast<uint32_t>(record_end);
      if (at < canonical.size()) Add("<end>", ++at, out);
    }
    return out;
  }

 private:
  static void Add(std::string token, uint32_t end, Tokens& out) {
    out.text.push_back(std::move(token));
    out.ends.push_back(end);
  }
};

class ToyEngine {
 public:
  explicit ToyEngine(int block) : block_(block) {}
  int Cached(const Tokens& prompt) const {
    const std::vector<uint64_t> chain = Chain(prompt);
    const size_t most = (prompt.text.size() - 1) / static_cast<size_t>(block_);
    size_t blocks = 0;
    while (blocks < most && held_.contains(chain[blocks])) ++blocks;
    return static_cast<int>(blocks) * block_;
  }
  void Store(const Tokens& all) {
    for (const uint64_t hash : Chain(all)) held_.insert(hash);
  }
  std::vector<uint32_t> BlockEnds(const Tokens& all) const {
    std::vector<uint32_t> ends;
    for (size_t i = static_cast<size_t>(block_); i <= all.text.size(); i += static_cast<size_t>(block_)) {
      ends.push_back(all.ends[i - 1]);
    }
    return ends;
  }

 private:
  std::vector<uint64_t> Chain(const Tokens& tokens) const {
    std::vector<uint64_t> chain;
    uint64_t hash = 0;
    for (size_t i = 0; i < tokens.text.size(); ++i) {
      hash = MixBits(hash ^ HashName(tokens.text[i]));
      if ((i + 1) % static_cast<size_t>(block_) == 0) chain.push_back(hash);
    }
    return chain;
  }
  int block_;
  std::set<uint64_t> held_;
};

struct Kind {
  const char* name;
  int replicas;
  uint32_t prelude;  // template tokens before the first message
  int block = 16;
};

class ExactPrediction : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    router_ = Router::Create({.policy = "cache-aware", .seed = 5});
    for (int i = 0; i < GetParam().replicas; ++i) {
      ids_.push_back(router_->AddReplica({.url = "grpc://10.0.0." + std::to_string(i) + ":1"}, now_));
      router_->OnReplicaFacts(ids_.back(),
                              {.epoch = Epoch{7},
                               .models = {"m"},
                               .kv_tokens = 10'000'000,
                               .kv_source = CapacitySource::kRegistered,
                               .block_size = GetParam().block},
                              now_);
      engines_.emplace_back(GetParam().block);
    }
  }

  /// About so many bytes, in whole tokens: where a text ends inside a word no index can know how the word
  /// goes on.
  std::string Text(size_t bytes) {
    std::string text;
    while (text.size() < bytes) {
      const char first = static_cast<char>('a' + random_.Below(26));
      text += first;
      for (size_t i = ToyTokenizer::Length(first); i > 1; --i)
        text += static_cast<char>('a' + random_.Below(26));
    }
    return text;
  }

  /// Returns the answer; counts whether the prediction was right.
  std::string Ask(const std::string& canonical, bool tell_admission) {
    now_ = now_ + std::chrono::milliseconds(50);
    const PromptKey key = MakePromptKey({"m", {}, {}}, std::string_view(canonical));
    const RequestId id{++last_};
    const Decision decision = router_->OnRequest({.id = id, .model = "m", .prompt = &key}, now_);
    router_->OnDispatch(id, now_);
    ToyEngine& engine = engines_[decision.replica->value - 1];
    const std::string start = "assistant\x1f", answer = Text(random_.Below(400));
    const Tokens prompt = ToyTokenizer::Chat(canonical + start, GetParam().prelude);
    const int cached = engine.Cached(prompt);
    const Tokens whole = ToyTokenizer::Chat(canonical + start + answer, GetParam().prelude);
    const auto prompt_ends = engine.BlockEnds(prompt);
    const auto prompt_tokens = static_cast<int32_t>(prompt.text.size());
    if (tell_admission) {
      router_->OnAdmitted(id, {prompt_tokens, cached, prompt_ends}, now_);
    }
    router_->OnFirstToken(id, now_);
    engine.Store(whole);
    const auto ends = engine.BlockEnds(whole);
    const std::string generated = start + answer;
    router_->OnComplete(id,
                        {.usage = UsageReport{.prompt_tokens = prompt_tokens,
                                              .completion_tokens = static_cast<int32_t>(whole.text.size() -
                                                                                        prompt.text.size()),
                                              .cached_tokens = cached,
                                              .block_end_bytes = ends,
                                              .generated_bytes = generated}},
                        now_);
    ++asked_;
    equal_ += decision.predicted_cached_tokens == cached;
    exact_ += decision.prediction_exact;
    reused_ += cached > 0;
    return answer;
  }

  Random random_{1};
  Instant now_{1};
  uint64_t last_ = 0;
  std::unique_ptr<Router> router_;
  std::vector<ReplicaId> ids_;
  std::vector<ToyEngine> engines_;
  int asked_ = 0, equal_ = 0, exact_ = 0, reused_ = 0;
};

TEST_P(ExactPrediction, ConversationsRepeatsAndBranches_NinetyNineOfHundredEqualTheEngine) {
  std::vector<std::string> systems{""};
  for (int i = 0; i < 3; ++i) systems.push_back("system\x1f" + Text(50 + random_.Below(3000)) + "\x1e");
  std::vector<std::string> conversations, asked;
  for (int i = 0; i < 4000; ++i) {
    const uint64_t what = random_.Below(10);
    if (conversations.empty() || what == 0) {
      conversations.push_back(systems[random_.Below(systems.size())]);
    }
    std::string& conversation =
        conversations[conversations.size() - 1 - random_.Below(std::min<size_t>(conversations.size(), 30))];
    std::string prompt;
    if (what == 1 && !asked.empty()) {
      prompt = asked[random_.Below(asked.size())];  // the same again, or the same but for its end
      if (random_.Below(2) == 0) {
        const size_t last_role = prompt.rfind('\x1f');
        prompt.resize(last_role + 1 + random_.Below(prompt.size() - last_role));
        if (prompt.back() == '\x1e') prompt.pop_back();
        prompt += Text(random_.Below(100)) + "\x1e";
      }
      Ask(prompt, random_.Below(2) == 0);
      continue;
    }
    conversation += "user\x1f" + Text(random_.Below(300)) + "\x1e";
    asked.push_back(conversation);
    conversation += "assistant\x1f" + Ask(conversation, random_.Below(2) == 0) + "\x1e";
    if (conversation.size() > 20'000) conversation = systems[0];
  }
  std::printf("%s: %d of %d equal, %d called exact, %d reused\n", GetParam().name, equal_, asked_, exact_,
              reused_);
  EXPECT_GE(equal_, asked_ * 99 / 100);
  EXPECT_GE(exact_, asked_ * 97 / 100);
  EXPECT_GE(reused_, asked_ / 2);
}

INSTANTIATE_TEST_SUITE_P(Fleets, ExactPrediction,
                         ::testing::Values(Kind{"one", 1, 0}, Kind{"four", 4, 0}, Kind{"prelude", 2, 23},
                                           Kind{"block4", 1, 0, 4}, Kind{"block32", 3, 5, 32}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kvring::router
