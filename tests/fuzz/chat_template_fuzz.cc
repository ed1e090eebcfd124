// Fuzz target of chat templates: any source parses or fails with a message, and renders any messages within
// its limits or fails with a message; user spans lie in order inside the text; and where the template writes
// no "<", no control token comes out, whatever the messages say (TOK-05). The input is the source, then after
// each NUL the content of one message.
#include <algorithm>
#include <string>

#include "replica/model/byte_alphabet.h"
#include "replica/model/chat_template.h"
#include "replica/model/jinja/template.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace kvring;
using namespace kvring::replica;

constexpr jinja::RenderLimits kLimits{.max_steps = 20'000, .max_bytes = 1 << 16, .max_depth = 64};

const Tokenizer& TheTokenizer() {
  static const Tokenizer tokenizer = [] {
    TokenizerSpec spec;
    for (int byte = 0; byte < 256; ++byte) {
      spec.tokens.push_back(AlphabetOfBytes(std::string(1, static_cast<char>(byte))));
      spec.types.push_back(static_cast<int32_t>(TokenType::kNormal));
    }
    spec.tokens.push_back("<|end|>");
    spec.types.push_back(static_cast<int32_t>(TokenType::kControl));
    spec.splits = NamedSplits("gpt2").value();
    return Tokenizer::Create(spec).value();
  }();
  return tokenizer;
}

std::vector<std::string> Parts(std::string_view input) {
  std::vector<std::string> parts(1);
  for (const char c : input) {
    if (c == '\0') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

std::vector<ChatMessage> Messages(const std::vector<std::string>& parts) {
  std::vector<ChatMessage> messages;
  size_t at = 0;
  for (size_t i = 1; i < parts.size() && i < 8; ++i) {
    ChatMessage message;
    message.role = i % 2 == 1 ? "user" : "assistant";
    message.content = parts[i];
    message.role_begin = at;
    message.content_begin = at + message.role.size() + 1;
    at = message.end = message.content_begin + message.content.size() + 1;
    messages.push_back(std::move(message));
  }
  return messages;
}

void CheckRender(const jinja::Template& parsed, const std::vector<ChatMessage>& messages) {
  jinja::List list;
  for (const ChatMessage& message : messages) {
    list.push_back(jinja::Value::OfDict(
        {{"role", jinja::Value(jinja::Text::FromUser(message.role, message.role_begin))},
         {"content", jinja::Value(jinja::Text::FromUser(message.content, message.content_begin))}}));
  }
  const auto text = parsed.Render({{"messages", jinja::Value::OfList(std::move(list))}}, 0, kLimits);
  if (!text.ok()) return Require(!text.status().message().empty(), "an error says what");
  size_t limit = kLimits.max_bytes;
#ifdef KVRING_FUZZ_CANARY
  limit = 200;
#endif
  Require(text->bytes().size() <= limit, "the output is within its limit");
  size_t end = 0;
  for (const jinja::UserSpan& span : text->spans()) {
    Require(span.begin >= end && span.end > span.begin, "spans are in order");
    end = span.end;
  }
  Require(end <= text->bytes().size(), "spans lie inside the text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::vector<std::string> parts = Parts({reinterpret_cast<const char*>(data), size});
  const auto parsed = jinja::Template::Parse(parts[0]);
  if (!parsed.ok()) {
    Require(!parsed.status().message().empty(), "an error says what");
    return 0;
  }
  const std::vector<ChatMessage> messages = Messages(parts);
  CheckRender(*parsed, messages);
  if (parts[0].find('<') != std::string::npos || parts[0].size() > 300) return 0;
  const auto chat = ChatTemplate::Create(parts[0], TheTokenizer());
  Require(chat.ok(), "what parses is a template");
  const auto prompt = (*chat)->Encode({&messages, "", messages.empty() ? 0 : messages.back().end, 0});
  if (!prompt.ok()) return 0;
  Require(std::find(prompt->tokens.begin(), prompt->tokens.end(), 256) == prompt->tokens.end(),
          "messages never become control tokens");
  Require(std::is_sorted(prompt->end_bytes.begin(), prompt->end_bytes.end()), "ends rise");
  return 0;
}
