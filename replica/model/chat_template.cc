#include "replica/model/chat_template.h"

#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "replica/model/jinja/template.h"

namespace kvring::replica {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::Text;
using jinja::UserSpan;
using jinja::Value;

constexpr size_t kCacheBytes = size_t{32} << 20;
constexpr size_t kCachedFrom = 32;  // bytes; shorter pieces are encoded faster than found

// Every string inside came from a user and depends on the canonical bytes up to `origin_end`.
Value FromJson(const boost::json::value& json, size_t origin_end) {
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value(jinja::None{});
    case boost::json::kind::bool_:
      return Value(json.get_bool());
    case boost::json::kind::int64:
      return Value(json.get_int64());
    case boost::json::kind::uint64:
      return Value(static_cast<double>(json.get_uint64()));
    case boost::json::kind::double_:
      return Value(json.get_double());
    case boost::json::kind::string:
      return Value(Text::DerivedFromUser(std::string(json.get_string()), origin_end));
    case boost::json::kind::array: {
      List list;
      for (const auto& element : json.get_array()) list.push_back(FromJson(element, origin_end));
      return Value::OfList(std::move(list));
    }
    case boost::json::kind::object:
      break;
  }
  Dict dict;
  for (const auto& entry : json.get_object())
    dict.emplace_back(std::string(entry.key()), FromJson(entry.value(), origin_end));
  return Value::OfDict(std::move(dict));
}

absl::StatusOr<Value> ParseJson(std::string_view raw, std::string_view field, size_t origin_end) {
  boost::system::error_code error;
  const boost::json::value json = boost::json::parse(boost::json::string_view(raw.data(), raw.size()), error);
  if (error)
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(field), ": not valid JSON: ", error.message()));
  return FromJson(json, origin_end);
}

absl::StatusOr<Value> MessageValue(const ChatMessage& message) {
  Dict dict;
  // A role's tokens, and the template's around it, stand for the place where a message begins: the generation
  // prompt of one turn and the header of the answer in the next are the same tokens, so they need the same
  // bytes, those before the role.
  dict.emplace_back("role", Value(Text::DerivedFromUser(message.role, message.role_begin)));
  dict.emplace_back("content", Value(Text::FromUser(message.content, message.content_begin)));
  for (const auto& [name, raw] : {std::pair<const char*, const std::string*>{"name", &message.name},
                                  {"tool_calls", &message.tool_calls},
                                  {"tool_call_id", &message.tool_call_id}}) {
    if (raw->empty()) continue;
    KVRING_ASSIGN_OR_RETURN(Value value, ParseJson(*raw, name, message.end));
    dict.emplace_back(name, std::move(value));
  }
  return Value::OfDict(std::move(dict));
}

// Maps offsets of the rendered text to canonical offsets. Calls come with rising `end`.
class CanonicalMap {
 public:
  CanonicalMap(const std::vector<UserSpan>& spans, size_t lead, size_t canonical_size)
      : spans_(spans), lead_(lead), size_(canonical_size) {}

  // The canonical bytes on which rendered bytes [0, end) depend. Inside text that stands there byte for byte:
  // up to that byte. In the template's own text behind it: one byte more, where a longer text would differ.
  // In front of all spans: `lead`.
  uint32_t Need(size_t end) {
    while (next_ < spans_.size() && spans_[next_].begin < end) ++next_;
    size_t need = lead_;
    if (next_ > 0) {
      const UserSpan& span = spans_[next_ - 1];
      need = span.exact ? span.origin + std::min(end, span.end) - span.begin : span.origin;
      if (span.exact && end > span.end) ++need;
    }
    highest_ = std::max(highest_, std::min(need, size_));
    return static_cast<uint32_t>(highest_);
  }

 private:
  const std::vector<UserSpan>& spans_;
  size_t lead_;
  size_t size_;
  size_t next_ = 0;
  size_t highest_ = 0;
};

}  // namespace

class ChatTemplate::Source {
 public:
  Source(jinja::Template parsed, const Tokenizer& tokenizer) : parsed_(std::move(parsed)) {
    bos_ = tokenizer.bos() >= 0 ? tokenizer.Bytes(tokenizer.bos()) : "";
    eos_ = tokenizer.stop_tokens().empty() ? "" : tokenizer.Bytes(tokenizer.stop_tokens().front());
  }

  absl::StatusOr<Text> Render(const ChatInput& input) const {
    List messages;
    for (const ChatMessage& message : *input.messages) {
      KVRING_ASSIGN_OR_RETURN(Value value, MessageValue(message));
      messages.push_back(std::move(value));
    }
    Dict variables = {{"messages", Value::OfList(std::move(messages))},
                      {"add_generation_prompt", Value(true)},
                      {"bos_token", Value::String(bos_)},
                      {"eos_token", Value::String(eos_)}};
    if (!input.tools_json.empty()) {
      KVRING_ASSIGN_OR_RETURN(Value tools, ParseJson(input.tools_json, "tools", input.tools_json.size() + 1));
      variables.emplace_back("tools", std::move(tools));
    }
    return parsed_.Render(variables, input.unix_seconds);
  }

 private:
  jinja::Template parsed_;
  std::string bos_;
  std::string eos_;
};

namespace {

// Encodes rendered text: control tokens where the template wrote them, plain pieces in between through the
// cache.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, SegmentCache& cache, const Text& text, const ChatInput& input)
      : tokenizer_(tokenizer),
        cache_(cache),
        text_(text),
        map_(text.spans(), Lead(input), input.canonical_size) {}

  EncodedPrompt Run() {
    const std::string& bytes = text_.bytes();
    size_t plain = 0;
    for (size_t at = 0; at < bytes.size();) {
      const TokenId control = ControlAt(at);
      if (control < 0) {
        ++at;
        continue;
      }
      Plain(plain, at);
      at += tokenizer_.Bytes(control).size();
      Add(control, at);
      plain = at;
    }
    Plain(plain, bytes.size());
    AddBos();
    return std::move(prompt_);
  }

 private:
  // What a template opens with depends on tools and on the first role.
  static size_t Lead(const ChatInput& input) {
    return input.messages->empty() ? input.canonical_size : input.messages->front().content_begin;
  }

  // A control token that lies wholly in the template's own text.
  TokenId ControlAt(size_t at) {
    const auto& spans = text_.spans();
    while (span_ < spans.size() && spans[span_].end <= at) ++span_;
    const size_t trusted_end = span_ < spans.size() ? spans[span_].begin : text_.bytes().size();
    if (trusted_end <= at) return -1;
    return tokenizer_.ControlAt(std::string_view(text_.bytes()).substr(at, trusted_end - at));
  }

  void Plain(size_t begin, size_t end) {
    if (begin == end) return;
    const std::string_view piece = std::string_view(text_.bytes()).substr(begin, end - begin);
    const TextPlace place = begin == 0 ? TextPlace::kBeginning : TextPlace::kBehindTokens;
    std::vector<TokenId> tokens;
    if (piece.size() < kCachedFrom || place == TextPlace::kBeginning) {
      tokenizer_.Encode(piece, ControlTokens::kAsText, place, tokens);
    } else if (!cache_.Lookup(piece, tokens)) {
      tokenizer_.Encode(piece, ControlTokens::kAsText, place, tokens);
      cache_.Insert(piece, tokens);
    }
    size_t at = 0;
    for (TokenId token : tokens) {
      at = tokenizer_.EndOf(token, piece, at);
      Add(token, begin + at);
    }
  }

  void Add(TokenId token, size_t end) {
    prompt_.tokens.push_back(token);
    prompt_.end_bytes.push_back(map_.Need(end));
  }

  void AddBos() {
    const bool has_bos = !prompt_.tokens.empty() && prompt_.tokens.front() == tokenizer_.bos();
    if (!tokenizer_.add_bos() || has_bos) return;
    prompt_.tokens.insert(prompt_.tokens.begin(), tokenizer_.bos());
    prompt_.end_bytes.insert(prompt_.end_bytes.begin(), 0);
  }

  const Tokenizer& tokenizer_;
  SegmentCache& cache_;
  const Text& text_;
  CanonicalMap map_;
  size_t span_ = 0;
  EncodedPrompt prompt_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Create(std::string_view source,
                                                                   const Tokenizer& tokenizer) {
  KVRING_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::Parse(source));
  return std::unique_ptr<ChatTemplate>(
      new ChatTemplate(std::make_unique<Source>(std::move(parsed), tokenizer), tokenizer));
}

ChatTemplate::ChatTemplate(std::unique_ptr<Source> source, const Tokenizer& tokenizer)
    : source_(std::move(source)),
      tokenizer_(tokenizer),
      cache_(std::make_unique<SegmentCache>(kCacheBytes)) {}

ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<EncodedPrompt> ChatTemplate::Encode(const ChatInput& input) const {
  KVRING_ASSIGN_OR_RETURN(const Text text, source_->Render(input));
  return Encoder(tokenizer_, *cache_, text, input).Run();
}

}  // namespace kvring::replica
