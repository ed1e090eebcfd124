// Precision and recall of the findings on prompts with a known fault, made here, and on prompts written by
// hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/random.h"
#include "router/ledger/reuse_audit.h"
#include "tests/unit/router/ledger/chat_prompt.h"

namespace kvring::router {
namespace {

using Message = std::pair<std::string, std::string>;

// A log and the one class that must be named; empty: none.
struct Labelled {
  std::string cause;
  std::vector<std::string> prompts;
};

std::set<std::string> Named(const std::vector<std::string>& prompts) {
  ReuseAudit audit({.alarm_after = 2, .prompt_bytes = 8 << 20, .history_blocks = 1 << 16});
  for (const std::string& prompt : prompts) audit.Add({.model = "m", .prompt = prompt});
  std::set<std::string> named;
  for (const DivergencePlace& finding : audit.Findings()) named.emplace(ClassName(finding.last.cause));
  return named;
}

struct Score {
  int right = 0, wrong = 0, missed = 0, false_alarms = 0;
  double precision() const { return static_cast<double>(right) / std::max(1, right + wrong); }
  double recall() const { return static_cast<double>(right) / std::max(1, right + missed); }
};

Score ScoreOf(const std::vector<Labelled>& corpus) {
  Score score;
  for (const Labelled& log : corpus) {
    const std::set<std::string> named = Named(log.prompts);
    const bool found = named.contains(log.cause);
    score.right += found;
    score.missed += !found && !log.cause.empty();
    score.wrong += static_cast<int>(named.size()) - found;
    score.false_alarms += log.cause.empty() && !named.empty();
    std::string all;
    for (const std::string& name : named) all += "'" + name + "' ";
    if (named.size() != (log.cause.empty() ? 0u : 1u) || (!found && !log.cause.empty()))
      std::printf("  '%s' named %s\n", log.cause.c_str(), all.c_str());
  }
  return score;
}

// The generator: an application (its own tools, rules and documents), a kind of prompt, and one fault.
class Application {
 public:
  explicit Application(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 5; ++i) tools_.push_back(Tool(i));
    for (int i = 0; i < 5; ++i) documents_.push_back(Sentences(6));
    rules_ = "You work for the " + Word() + " " + Word() + " desk. " + Sentences(12);
  }

  std::string Word() {
    static constexpr const char* kWords[] = {
        "lamp",   "parcel", "refund", "order",  "blue",   "late",  "seal",   "box",   "shop",  "ticket",
        "repair", "tool",   "branch", "market", "light",  "rope",  "paper",  "ferry", "bread", "stone",
        "garden", "glass",  "river",  "winter", "copper", "cloud", "letter", "engine"};
    return kWords[random_.Below(std::size(kWords))];
  }
  std::string Sentence() {
    std::string text = "The " + Word();
    for (uint64_t n = 5 + random_.Below(9); n > 0; --n) text += " " + Word();
    return text + ".";
  }
  std::string Sentences(int n) {
    std::string text;
    for (int i = 0; i < n; ++i) text += Sentence() + (i % 3 == 2 ? "\n" : " ");
    return text;
  }
  std::string Two(uint64_t n) { return (n < 10 ? "0" : "") + std::to_string(n); }

  // Requests of one log; `front` is what stands before the rules in request i.
  std::vector<std::string> Ask(int kind, const std::function<std::string(int)>& front) {
    std::vector<std::string> prompts;
    std::vector<Message> history;
    for (int i = 0; i < kRequests; ++i) {
      const std::string system = front(i) + rules_;
      switch (kind) {
        case 0:  // a chat that grows
          history.push_back({"user", Sentence()});
          prompts.push_back(Chat(system, history));
          history.push_back({"assistant", Sentences(2)});
          break;
        case 1:  // documents and a question
          prompts.push_back(
              ChatPrompt({{"system", system}, {"user", documents_[random_.Below(5)] + Sentence()}}));
          break;
        case 2:  // an agent with tools
          history.push_back({"user", Sentence()});
          prompts.push_back(Chat(system, history, List(tools_)));
          history.push_back({"assistant", Sentence()});
          history.push_back({"tool", Sentences(3)});
          break;
        default:  // a completion
          prompts.push_back(system + "\nQ: " + Sentence() + "\nA:");
      }
    }
    return prompts;
  }

  std::string Value(const std::string& cause, int i) {
    const auto n = static_cast<uint64_t>(i);
    const std::string time = Two(8 + n) + ":" + Two(random_.Below(60)) + ":" + Two(random_.Below(60));
    if (cause == "timestamp") {
      const std::string forms[] = {"Now: 2026-08-21 " + time + "\n", "It is " + time + ". ",
                                   "time=" + std::to_string(1787322727 + 61 * n + random_.Below(50)) + "\n",
                                   "[2026-08-21T" + time + "Z] "};
      return forms[form_ % 4];
    }
    if (cause == "date") {
      const std::string forms[] = {"Today is 2026-08-" + Two(10 + n) + ". ",
                                   "Date: August " + std::to_string(3 + n) + ", 2026\n"};
      return forms[form_ % 2];
    }
    if (cause == "uuid")
      return "trace " + Hex(8) + "-" + Hex(4) + "-4" + Hex(3) + "-a" + Hex(3) + "-" + Hex(12) + "\n";
    if (cause == "counter") return (form_ % 2 ? "Turn " : "request #") + std::to_string(7 + i) + ". ";
    if (cause == "random nonce") return (form_ % 2 ? "nonce: " : "id=") + Hex(12 + form_ % 3) + "\n";
    static constexpr const char* kNames[] = {"Maria Gonzalez", "Tom Baker", "Aiko Tanaka", "Priya Shah",
                                             "Lars Holm",      "Ana Silva", "Ben Adler",   "Zoe Frank"};
    return "You are talking to " + std::string(kNames[n % 8]) + ".\n";
  }
  void SetForm(uint64_t form) { form_ = form; }

  std::vector<std::string> WithTools(const std::function<std::vector<std::string>(int)>& tools) {
    std::vector<std::string> prompts;
    for (int i = 0; i < kRequests; ++i)
      prompts.push_back(ChatPrompt({{"system", rules_}, {"user", Sentence()}}, List(tools(i))));
    return prompts;
  }
  std::vector<std::string> ToolsReordered() {
    return WithTools([this](int) {
      Shuffle(tools_);
      return tools_;
    });
  }
  std::vector<std::string> ToolsChanged() {
    return WithTools([this](int i) { return std::vector(tools_.begin(), tools_.begin() + 1 + i % 5); });
  }
  std::vector<std::string> KeyOrder() {
    std::vector<std::string> fields = {R"("plan":"gold")", R"("since":2019)", R"("city":"Bern")",
                                       R"("open":[1,2])"};
    return Ask(1, [this, fields](int) mutable {
      Shuffle(fields);
      std::string json = "Profile {";
      for (const std::string& field : fields) json += (json.back() == '{' ? "" : ",") + field;
      return json + "}\n";
    });
  }
  std::vector<std::string> Whitespace() {
    return Ask(3, [](int i) { return "Rules:" + std::string(1 + static_cast<size_t>(i) % 5, ' '); });
  }
  std::vector<std::string> VariableFirst(bool system) {
    std::vector<std::string> prompts;
    for (int i = 0; i < kRequests; ++i) {
      const std::string question = Sentence() + " " + Sentence();
      prompts.push_back(system ? ChatPrompt({{"system", question}, {"user", rules_}})
                               : ChatPrompt({{"user", question + "\n" + rules_}}));
    }
    return prompts;
  }
  std::vector<std::string> DocumentsReordered() {
    std::vector<std::string> prompts;
    for (int i = 0; i < kRequests; ++i) {
      Shuffle(documents_);
      std::string text = "Context:\n";
      for (size_t k = 0; k < documents_.size(); ++k)
        text += "[" + std::to_string(k + 1) + "] " + documents_[k] + "\n";
      prompts.push_back(ChatPrompt({{"system", rules_}, {"user", text + Sentence()}}));
    }
    return prompts;
  }
  std::vector<std::string> HistoryTruncated() {
    std::vector<std::string> prompts;
    std::vector<Message> history;
    for (int i = 0; i < 2 * kRequests; ++i) {
      history.push_back({"user", Sentences(3)});
      if (history.size() > 9) history.erase(history.begin(), history.begin() + 2);
      prompts.push_back(Chat(rules_, history));
      history.push_back({"assistant", Sentences(3)});
    }
    return prompts;
  }
  std::vector<std::string> PromptHeader() {
    std::vector<std::string> prompts;
    std::string text = "<system>\n" + rules_;
    for (int i = 0; i < kRequests; ++i) {
      text += "<user>\n" + Sentence() + "\n<assistant>\n";
      prompts.push_back(text + "<think>\n");
      text += Sentence() + "\n";
    }
    return prompts;
  }

 private:
  static constexpr int kRequests = 8;

  std::string Tool(int i) {
    return R"({"type":"function","function":{"name":")" + Word() + std::to_string(i) +
           R"(","description":")" + Sentence() + " " + Sentence() +
           R"(","parameters":{"type":"object","properties":{"q":{"type":"string"}}}}})";
  }
  static std::string List(const std::vector<std::string>& tools) {
    std::string list = "[";
    for (const std::string& tool : tools) list += (list.size() > 1 ? "," : "") + tool;
    return list + "]";
  }
  static std::string Chat(const std::string& system, const std::vector<Message>& history,
                          const std::string& tools = "") {
    std::vector<Message> messages = {{"system", system}};
    messages.insert(messages.end(), history.begin(), history.end());
    return ChatPrompt(messages, tools);
  }
  std::string Hex(uint64_t digits) {
    std::string text;
    for (; digits > 0; --digits) text += "0123456789abcdef"[random_.Below(16)];
    return text;
  }
  void Shuffle(std::vector<std::string>& list) {
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random_.Below(i)]);
  }

  Random random_;
  uint64_t form_ = 0;
  std::vector<std::string> tools_;
  std::vector<std::string> documents_;
  std::string rules_;
};

std::vector<Labelled> MadeCorpus(uint64_t seed) {
  std::vector<Labelled> corpus;
  for (uint64_t round = 0; round < 4; ++round) {
    for (const char* cause :
         {"timestamp", "date", "uuid", "counter", "random nonce", "user's own value in the system prompt"}) {
      for (int kind = 0; kind < 4; ++kind) {
        if (std::string(cause).starts_with("user") && kind == 3)
          continue;  // a completion has no system prompt
        Application app(seed * 1000 + corpus.size());
        app.SetForm(round + static_cast<uint64_t>(kind));
        corpus.push_back({cause, app.Ask(kind, [&](int i) { return app.Value(cause, i); })});
      }
    }
    const auto app = [&] { return Application(seed * 1000 + corpus.size()); };
    corpus.push_back({"tools reordered", app().ToolsReordered()});
    corpus.push_back({"tools added or removed", app().ToolsChanged()});
    corpus.push_back({"JSON key order", app().KeyOrder()});
    corpus.push_back({"whitespace", app().Whitespace()});
    corpus.push_back({"variable-first arrangement", app().VariableFirst(false)});
    corpus.push_back({"variable-first arrangement", app().VariableFirst(true)});
    corpus.push_back({"documents reordered", app().DocumentsReordered()});
    corpus.push_back({"history truncation", app().HistoryTruncated()});
    corpus.push_back({"generation prompt / reasoning header", app().PromptHeader()});
    for (int kind = 0; kind < 4; ++kind) corpus.push_back({"", app().Ask(kind, [](int) { return ""; })});
  }
  return corpus;
}

// See the head of the file for its form.
std::vector<Labelled> WrittenCorpus() {
  std::ifstream in(std::string(KVRING_SOURCE_DIR) + "/tests/unit/router/ledger/testdata/written_by_hand.txt");
  std::vector<Labelled> corpus;
  std::string text, line;
  const auto prompt = [&](const std::string& version) {
    std::string filled = text;
    filled.replace(filled.find("{}"), 2, version);
    std::vector<Message> messages;
    for (size_t at = 0; at < filled.size();) {
      const size_t next = std::min(filled.find("\nuser: ", at), filled.size());
      const size_t colon = filled.find(": ", at);
      messages.push_back({filled.substr(at, colon - at), filled.substr(colon + 2, next - colon - 2)});
      at = next + 1;
    }
    return ChatPrompt(messages);
  };
  while (std::getline(in, line)) {
    if (line.starts_with('#')) continue;
    if (line.starts_with("=== ")) {
      corpus.push_back({line.substr(4) == "clean" ? "" : line.substr(4), {}});
      text.clear();
    } else if (line.starts_with("- ") && text.find("{}") != std::string::npos) {
      corpus.back().prompts.push_back(prompt(line.substr(2)));
    } else {
      text += (text.empty() ? "" : "\n") + line;
    }
  }
  return corpus;
}

void ExpectGood(const Score& score) {
  EXPECT_GE(score.precision(), 0.95);
  EXPECT_GE(score.recall(), 0.9);
  EXPECT_EQ(score.false_alarms, 0);
}

TEST(DivergenceCorpus, Made_PrecisionAndRecall) {
  for (const uint64_t seed : {1, 2, 3}) {
    const Score score = ScoreOf(MadeCorpus(seed));
    std::printf("seed %d: precision %.3f, recall %.3f\n", static_cast<int>(seed), score.precision(),
                score.recall());
    ExpectGood(score);
  }
}

TEST(DivergenceCorpus, WrittenByHand_PrecisionAndRecall) {
  const std::vector<Labelled> corpus = WrittenCorpus();
  ASSERT_EQ(corpus.size(), 15u);
  for (const Labelled& log : corpus) ASSERT_EQ(log.prompts.size(), 3u) << log.cause;
  ExpectGood(ScoreOf(corpus));
}

}  // namespace
}  // namespace kvring::router
