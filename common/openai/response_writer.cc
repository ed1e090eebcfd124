#include "common/openai/response_writer.h"

#include <cmath>

#include "common/json_text.h"
#include "common/utf8.h"

namespace kvring::openai {
namespace {

void AppendText(std::string& out, std::string_view raw) {
  if (IsValidUtf8(raw)) {
    AppendJsonString(out, raw);
    return;
  }
  std::string valid;
  AppendValidUtf8(valid, raw);
  AppendJsonString(out, valid);
}

void AppendReason(std::string& out, std::string_view finish_reason) {
  if (finish_reason.empty()) {
    out += "null";
  } else {
    AppendJsonString(out, finish_reason);
  }
}

void AppendBytes(std::string& out, std::string_view raw) {
  out += '[';
  for (size_t i = 0; i < raw.size(); ++i) {
    if (i > 0) out += ',';
    AppendJsonInt(out, static_cast<unsigned char>(raw[i]));
  }
  out += ']';
}

// {"token":…,"logprob":…,"bytes":[…]   (left open)
void AppendToken(std::string& out, std::string_view raw, double logprob) {
  out += R"({"token":)";
  AppendText(out, raw);
  out += R"(,"logprob":)";
  AppendJsonNumber(out, logprob);
  out += R"(,"bytes":)";
  AppendBytes(out, raw);
}

void AppendChatLogprobs(std::string& out, std::span<const TokenLogprob> tokens) {
  out += R"({"content":[)";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    AppendToken(out, tokens[i].token, tokens[i].logprob);
    out += R"(,"top_logprobs":[)";
    for (size_t t = 0; t < tokens[i].top.size(); ++t) {
      if (t > 0) out += ',';
      AppendToken(out, tokens[i].top[t].token, tokens[i].top[t].logprob);
      out += '}';
    }
    out += "]}";
  }
  out += R"(],"refusal":null})";
}

template <class Append>
void AppendList(std::string& out, std::string_view name, std::span<const TokenLogprob> tokens,
                Append append) {
  out += '"';
  out += name;
  out += "\":[";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    append(tokens[i]);
  }
  out += ']';
}

void AppendTopObject(std::string& out, const TokenLogprob& token) {
  if (std::isnan(token.logprob)) {  // the first token of an echoed prompt
    out += "null";
    return;
  }
  out += '{';
  for (size_t t = 0; t < token.top.size(); ++t) {
    if (t > 0) out += ',';
    AppendText(out, token.top[t].token);
    out += ':';
    AppendJsonNumber(out, token.top[t].logprob);
  }
  out += '}';
}

// The older form of /v1/completions. `offset` is where the first token's text begins and moves on.
void AppendTextLogprobs(std::string& out, std::span<const TokenLogprob> tokens, size_t& offset) {
  out += '{';
  AppendList(out, "tokens", tokens, [&](const TokenLogprob& token) { AppendText(out, token.token); });
  out += ',';
  AppendList(out, "token_logprobs", tokens,
             [&](const TokenLogprob& token) { AppendJsonNumber(out, token.logprob); });
  out += ',';
  AppendList(out, "top_logprobs", tokens, [&](const TokenLogprob& token) { AppendTopObject(out, token); });
  out += ',';
  AppendList(out, "text_offset", tokens, [&](const TokenLogprob& token) {
    AppendJsonInt(out, static_cast<int64_t>(offset));
    offset += token.token.size();
  });
  out += '}';
}

void AppendLogprobs(std::string& out, Route route, bool wanted, std::span<const TokenLogprob> tokens,
                    size_t& offset) {
  out += R"(,"logprobs":)";
  if (!wanted) {
    out += "null";
  } else if (route == Route::kChat) {
    AppendChatLogprobs(out, tokens);
  } else {
    AppendTextLogprobs(out, tokens, offset);
  }
}

// {"id":…,"object":…,"created":…,"model":…,"choices":[
std::string AnswerHead(const AnswerIdentity& identity, std::string_view object) {
  std::string out = R"({"id":)";
  AppendJsonString(out, identity.id);
  out += R"(,"object":")";
  out += object;
  out += R"(","created":)";
  AppendJsonInt(out, identity.created);
  out += R"(,"model":)";
  AppendJsonString(out, identity.model);
  out += R"(,"choices":[)";
  return out;
}

}  // namespace

void AppendUsage(std::string& out, const UsageCounts& usage) {
  out += R"({"prompt_tokens":)";
  AppendJsonInt(out, usage.prompt_tokens);
  out += R"(,"completion_tokens":)";
  AppendJsonInt(out, usage.completion_tokens);
  out += R"(,"total_tokens":)";
  AppendJsonInt(out, int64_t{usage.prompt_tokens} + usage.completion_tokens);
  out += R"(,"prompt_tokens_details":{"cached_tokens":)";
  AppendJsonInt(out, usage.cached_tokens);
  if (usage.truncated_tokens > 0) {
    out += R"(,"truncated":true,"kept_span":[)";
    AppendJsonInt(out, usage.truncated_tokens);
    out += ',';
    AppendJsonInt(out, int64_t{usage.truncated_tokens} + usage.prompt_tokens);
    out += ']';
  }
  out += "}}";
}

StreamWriter::StreamWriter(AnswerIdentity identity, bool include_usage, bool logprobs)
    : identity_(std::move(identity)), include_usage_(include_usage), logprobs_(logprobs) {
  head_ = "data: " + AnswerHead(identity_, identity_.route == Route::kChat ? "chat.completion.chunk"
                                                                           : "text_completion");
}

void StreamWriter::Open(std::string& out) const { out += head_; }

void StreamWriter::Close(std::string& out) const {
  out += include_usage_ ? "],\"usage\":null}\n\n" : "]}\n\n";
}

void StreamWriter::Delta(std::string& out, const ChoiceDelta& delta) {
  const auto choice = static_cast<size_t>(delta.index);
  if (started_.size() <= choice) {
    started_.resize(choice + 1);
    text_offset_.resize(choice + 1);
  }
  Open(out);
  out += R"({"index":)";
  AppendJsonInt(out, delta.index);
  if (identity_.route == Route::kChat) {
    out += started_[choice] ? R"(,"delta":{)" : R"(,"delta":{"role":"assistant",)";
    out += R"("content":)";
    AppendJsonString(out, delta.text);
    out += '}';
  } else {
    out += R"(,"text":)";
    AppendJsonString(out, delta.text);
  }
  started_[choice] = true;
  AppendLogprobs(out, identity_.route, logprobs_, delta.logprobs, text_offset_[choice]);
  out += R"(,"finish_reason":)";
  AppendReason(out, delta.finish_reason);
  out += '}';
  Close(out);
}

void StreamWriter::Finish(std::string& out, const UsageCounts& usage) {
  if (include_usage_) {
    Open(out);
    out += R"(],"usage":)";
    AppendUsage(out, usage);
    out += "}\n\n";
  }
  out += "data: [DONE]\n\n";
}

void StreamWriter::Error(std::string& out, const ApiError& error) {
  out += "data: ";
  out += error.ToJson();
  out += "\n\n";
}

AnswerWriter::AnswerWriter(AnswerIdentity identity, bool logprobs)
    : identity_(std::move(identity)), logprobs_(logprobs) {}

void AnswerWriter::Delta(const ChoiceDelta& delta) {
  Choice& choice = choices_[delta.index];
  choice.text.append(delta.text);
  choice.logprobs.insert(choice.logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
  if (!delta.finish_reason.empty()) choice.finish_reason = delta.finish_reason;
}

std::string AnswerWriter::Finish(const UsageCounts& usage) const {
  const bool chat = identity_.route == Route::kChat;
  std::string out = AnswerHead(identity_, chat ? "chat.completion" : "text_completion");
  bool first = true;
  for (const auto& [index, choice] : choices_) {
    if (!first) out += ',';
    first = false;
    out += R"({"index":)";
    AppendJsonInt(out, index);
    out += chat ? R"(,"message":{"role":"assistant","content":)" : R"(,"text":)";
    AppendJsonString(out, choice.text);
    if (chat) out += R"(,"refusal":null})";
    size_t offset = 0;
    AppendLogprobs(out, identity_.route, logprobs_, choice.logprobs, offset);
    out += R"(,"finish_reason":)";
    AppendReason(out, choice.finish_reason);
    out += '}';
  }
  out += R"(],"usage":)";
  AppendUsage(out, usage);
  out += '}';
  return out;
}

std::string ModelList(std::span<const ModelEntry> models, int64_t created) {
  std::string out = R"({"object":"list","data":[)";
  for (size_t i = 0; i < models.size(); ++i) {
    if (i > 0) out += ',';
    out += R"({"id":)";
    AppendJsonString(out, models[i].id);
    out += R"(,"object":"model","created":)";
    AppendJsonInt(out, created);
    out += R"(,"owned_by":"kvring")";
    if (models[i].context_length > 0) {
      out += R"(,"max_model_len":)";
      AppendJsonInt(out, models[i].context_length);
    }
    out +=
        models[i].chat ? R"(,"capabilities":["chat","completions"]})" : R"(,"capabilities":["completions"]})";
  }
  out += "]}";
  return out;
}

}  // namespace kvring::openai
