#include "common/openai/generation_request.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/openai/json_fields.h"

namespace kvring::openai {
namespace {

using MaybeError = std::optional<ApiError>;

constexpr int64_t kMaxChoices = 128;
constexpr size_t kMaxStops = 16;
constexpr int64_t kMaxTopLogprobs = 20;
constexpr int64_t kMaxCacheTtlSeconds = 86400;

ApiError WrongType(std::string_view field, std::string_view wanted) {
  return InvalidRequest(field, absl::StrCat(std::string(field), " must be ", std::string(wanted), "."));
}

MaybeError ReadBool(json::value value, std::string_view field, bool& out) {
  return value.get_bool().get(out) ? MaybeError(WrongType(field, "a boolean")) : std::nullopt;
}

// JSON integers only: 1.5, "5" and numbers outside 64 bits are refused.
MaybeError ReadInt(json::value value, std::string_view field, int64_t low, int64_t high, int64_t& out) {
  if (value.get_int64().get(out) || out < low || out > high) {
    return WrongType(field, absl::StrCat("an integer from ", low, " to ", high));
  }
  return std::nullopt;
}

MaybeError ReadInt32(json::value value, std::string_view field, int64_t low, int64_t high, int32_t& out) {
  int64_t wide = 0;
  if (auto error = ReadInt(value, field, low, high, wide)) return error;
  out = static_cast<int32_t>(wide);
  return std::nullopt;
}

MaybeError ReadNumber(json::value value, std::string_view field, double low, double high, double& out) {
  if (value.get_double().get(out) || !(out >= low && out <= high)) {
    return WrongType(field, absl::StrCat("a number from ", low, " to ", high));
  }
  return std::nullopt;
}

MaybeError ReadString(json::value value, std::string_view field, std::string& out) {
  std::string_view text;
  if (auto error = value.get_string().get(text)) {
    return error == simdjson::INCORRECT_TYPE ? WrongType(field, "a string") : JsonError(error, field);
  }
  out = text;
  return std::nullopt;
}

// OpenAI seeds are integers; negative and 64-bit unsigned ones are taken by their bits.
MaybeError ReadSeed(json::value value, std::optional<uint64_t>& out) {
  uint64_t positive = 0;
  int64_t any = 0;
  if (!value.get_uint64().get(positive)) {
    out = positive;
  } else if (!value.get_int64().get(any)) {
    out = static_cast<uint64_t>(any);
  } else {
    return WrongType("seed", "a 64-bit integer");
  }
  return std::nullopt;
}

MaybeError ReadStop(json::value value, std::vector<std::string>& out) {
  out.clear();
  json::json_type type;
  if (auto error = value.type().get(type)) return JsonError(error, "stop");
  if (type == json::json_type::string) return ReadString(value, "stop", out.emplace_back());
  json::array array;
  if (value.get_array().get(array)) return WrongType("stop", "a string or an array of strings");
  for (auto element : array) {
    json::value item;
    if (auto error = std::move(element).get(item)) return JsonError(error, "stop");
    const std::string path = absl::StrCat("stop[", out.size(), "]");
    if (auto error = ReadString(item, path, out.emplace_back())) return error;
    if (out.size() > kMaxStops)
      return InvalidRequest("stop", absl::StrCat("stop holds more than ", kMaxStops, " strings."));
  }
  return std::nullopt;
}

MaybeError ReadLogitBias(json::value value, std::map<TokenId, float>& out) {
  json::object object;
  if (value.get_object().get(object)) return WrongType("logit_bias", "an object of token ids and numbers");
  for (auto entry : object) {
    json::field field;
    if (auto error = std::move(entry).get(field)) return JsonError(error, "logit_bias");
    std::string_view key;
    if (auto error = field.unescaped_key().get(key)) return JsonError(error, "logit_bias");
    TokenId id = -1;
    const auto [end, parsed] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (parsed != std::errc() || end != key.data() + key.size() || id < 0)
      return WrongType("logit_bias", "keyed by token ids");
    double bias = 0;
    if (auto error = ReadNumber(field.value(), absl::StrCat("logit_bias.", id), -100, 100, bias))
      return error;
    out[id] = static_cast<float>(bias);
  }
  return std::nullopt;
}

class GenerationReader {
 public:
  GenerationReader(Route route, GenerationRequest& request) : request_(request) { request_.route = route; }

  MaybeError Read(json::object& object) {
    for (auto entry : object) {
      json::field field;
      if (auto error = std::move(entry).get(field)) return JsonError(error, "");
      std::string_view key;
      if (auto error = field.unescaped_key().get(key)) return JsonError(error, "");
      const std::string name(key);
      json::value value = field.value();
      json::json_type type;
      if (auto error = value.type().get(type)) return JsonError(error, name);
      if (type == json::json_type::null) continue;  // null is "use the default"
      if (auto error = Field(name, value)) return error;
    }
    return Finish();
  }

 private:
  bool chat() const { return request_.route == Route::kChat; }

  MaybeError Field(const std::string& name, json::value value) {
    if (name == "model") return ReadString(value, name, request_.model);
    if (name == "stream") return ReadBool(value, name, request_.stream);
    if (name == "stream_options") return StreamOptions(value);
    if (name == "user") return ReadString(value, name, request_.user);
    if (name == "cache_salt") return ReadString(value, name, request_.cache_salt);
    if (name == "priority") return ReadInt32(value, name, INT32_MIN, INT32_MAX, request_.priority);
    if (name == "truncate_prompt_tokens")
      return ReadInt32(value, name, 1, INT32_MAX, request_.truncate_prompt_tokens.emplace());
    if (name == "cache_retention") return CacheRetention(value);
    if (chat() && name == "messages") {  // the last of equal keys counts
      request_.messages.clear();
      return WalkMessages(value, messages_ = {}, &request_.messages);
    }
    if (chat() && name == "tools") return WalkTools(value, tools_ = {}, &request_.tools_json);
    if (!chat() && name == "prompt") {
      request_.prompts.clear();
      request_.prompt_ids.clear();
      return Prompt(value);
    }
    if (!chat() && name == "echo") return ReadBool(value, name, request_.echo);
    if (!chat() && name == "best_of") return BestOf(value);
    return SamplingField(name, value);
  }

  MaybeError SamplingField(const std::string& name, json::value value) {
    SamplingFields& sampling = request_.sampling;
    if (name == "max_tokens" || name == "max_completion_tokens") {
      return ReadInt32(value, name, 0, INT32_MAX, sampling.max_tokens.emplace());
    }
    if (name == "temperature") return ReadNumber(value, name, 0, 2, sampling.temperature);
    if (name == "top_p") return ReadNumber(value, name, 0, 1, sampling.top_p);
    if (name == "top_k") return ReadInt32(value, name, -1, INT32_MAX, sampling.top_k);
    if (name == "min_p") return ReadNumber(value, name, 0, 1, sampling.min_p);
    if (name == "seed") return ReadSeed(value, sampling.seed);
    if (name == "n") return ReadInt32(value, name, 1, kMaxChoices, sampling.n);
    if (name == "stop") return ReadStop(value, sampling.stop);
    if (name == "frequency_penalty") return ReadNumber(value, name, -2, 2, sampling.frequency_penalty);
    if (name == "presence_penalty") return ReadNumber(value, name, -2, 2, sampling.presence_penalty);
    if (name == "logit_bias") return ReadLogitBias(value, sampling.logit_bias);
    if (name == "min_tokens") return ReadInt32(value, name, 0, INT32_MAX, sampling.min_tokens);
    if (name == "ignore_eos") return ReadBool(value, name, sampling.ignore_eos);
    if (name == "logprobs") return Logprobs(value);
    if (name == "top_logprobs") return ReadInt32(value, name, 0, kMaxTopLogprobs, top_logprobs_.emplace());
    return std::nullopt;
  }

  // Chat: a switch beside top_logprobs. Completions: the number of alternatives.
  MaybeError Logprobs(json::value value) {
    if (chat()) return ReadBool(value, "logprobs", chat_logprobs_);
    return ReadInt32(value, "logprobs", 0, kMaxTopLogprobs, request_.sampling.logprobs.emplace());
  }

  MaybeError StreamOptions(json::value value) {
    json::object options;
    if (value.get_object().get(options)) return WrongType("stream_options", "an object");
    has_stream_options_ = true;
    json::value usage;
    if (options.find_field_unordered("include_usage").get(usage)) return std::nullopt;
    if (usage.is_null()) return std::nullopt;
    return ReadBool(usage, "stream_options.include_usage", request_.include_usage);
  }

  MaybeError CacheRetention(json::value value) {
    json::object fields;
    if (value.get_object().get(fields)) return WrongType("cache_retention", "an object");
    for (auto entry : fields) {
      json::field field;
      if (auto error = std::move(entry).get(field)) return JsonError(error, "cache_retention");
      std::string_view key;
      if (auto error = field.unescaped_key().get(key)) return JsonError(error, "cache_retention");
      const std::string path = absl::StrCat("cache_retention.", std::string(key));
      MaybeError error = WrongType(path, "absent: class and ttl_s are the fields there are");
      if (key == "class") error = CacheClassOf(field.value());
      if (key == "ttl_s")
        error = ReadInt32(field.value(), path, 0, kMaxCacheTtlSeconds, request_.cache_retention.ttl_s);
      if (error) return error;
    }
    return std::nullopt;
  }

  MaybeError CacheClassOf(json::value value) {
    constexpr std::string_view kField = "cache_retention.class";
    std::string name;
    if (auto error = ReadString(value, kField, name)) return error;
    constexpr std::string_view kNames[] = {"low", "normal", "high", "pinned"};
    const auto* const at = std::find(std::begin(kNames), std::end(kNames), name);
    if (at == std::end(kNames)) return WrongType(kField, "low, normal, high or pinned");
    request_.cache_retention.cache_class = static_cast<CacheClass>(at - std::begin(kNames));
    return std::nullopt;
  }

  MaybeError BestOf(json::value value) {
    int64_t best_of = 0;
    if (auto error = ReadInt(value, "best_of", 1, kMaxChoices, best_of)) return error;
    if (best_of != 1) return InvalidRequest("best_of", "best_of above 1 is not supported; use n.");
    return std::nullopt;
  }

  MaybeError Prompt(json::value value) {
    json::json_type type;
    if (auto error = value.type().get(type)) return JsonError(error, "prompt");
    if (type == json::json_type::string) return ReadString(value, "prompt", request_.prompts.emplace_back());
    json::array array;
    if (value.get_array().get(array)) return WrongPrompt();
    bool flat_ids = false;
    for (auto element : array) {
      json::value item;
      if (auto error = std::move(element).get(item)) return JsonError(error, "prompt");
      if (auto error = PromptElement(item, flat_ids)) return error;
    }
    return std::nullopt;
  }

  static ApiError WrongPrompt() {
    return WrongType("prompt",
                     "a string, an array of strings, an array of token ids or an array of such arrays");
  }

  // flat_ids: the outer array itself is one prompt of ids.
  MaybeError PromptElement(json::value item, bool& flat_ids) {
    json::json_type type;
    if (auto error = item.type().get(type)) return JsonError(error, "prompt");
    if (type == json::json_type::number) {
      if (!flat_ids) {
        if (!request_.prompt_ids.empty() || !request_.prompts.empty()) return WrongPrompt();
        request_.prompt_ids.emplace_back();
        flat_ids = true;
      }
      return TokenOf(item, request_.prompt_ids.back());
    }
    if (flat_ids) return WrongPrompt();
    if (type == json::json_type::string && request_.prompt_ids.empty()) {
      const std::string path = absl::StrCat("prompt[", request_.prompts.size(), "]");
      return ReadString(item, path, request_.prompts.emplace_back());
    }
    if (type == json::json_type::array && request_.prompts.empty()) return IdArray(item);
    return WrongPrompt();
  }

  MaybeError IdArray(json::value item) {
    json::array ids;
    if (auto error = item.get_array().get(ids)) return JsonError(error, "prompt");
    std::vector<TokenId>& out = request_.prompt_ids.emplace_back();
    for (auto element : ids) {
      json::value id;
      if (auto error = std::move(element).get(id)) return JsonError(error, "prompt");
      if (auto error = TokenOf(id, out)) return error;
    }
    return std::nullopt;
  }

  static MaybeError TokenOf(json::value item, std::vector<TokenId>& out) {
    int32_t id = 0;
    if (auto error = ReadInt32(item, absl::StrCat("prompt[", out.size(), "]"), 0, INT32_MAX, id))
      return error;
    out.push_back(id);
    return std::nullopt;
  }

  MaybeError Finish() {
    if (has_stream_options_ && !request_.stream) {
      return InvalidRequest("stream_options", "stream_options is only allowed when stream is true.");
    }
    if (auto error = chat() ? FinishChat() : FinishCompletions()) return error;
    if (auto error = CheckCacheRetention(request_.cache_retention)) return error;
    if (request_.sampling.top_k < 0) request_.sampling.top_k = 0;  // -1 is "off" in the field
    return CheckSampling(request_.sampling, /*max_tokens_zero_allowed=*/!chat() && request_.echo);
  }

  MaybeError FinishChat() {
    if (request_.messages.empty())
      return InvalidRequest("messages", "messages must hold at least one message.");
    if (top_logprobs_.has_value() && !chat_logprobs_) {
      return InvalidRequest("top_logprobs", "top_logprobs is only allowed when logprobs is true.");
    }
    if (chat_logprobs_) request_.sampling.logprobs = top_logprobs_.value_or(0);
    const size_t shift = tools_.size();  // canonically tools stand before the messages
    for (ChatMessage& message : request_.messages) {
      message.role_begin += shift;
      message.content_begin += shift;
      message.end += shift;
    }
    request_.canonical = tools_.Take() + messages_.bytes();
    return std::nullopt;
  }

  MaybeError FinishCompletions() {
    if (request_.prompts.empty() && request_.prompt_ids.empty()) {
      return InvalidRequest("prompt", "Missing required field: prompt.");
    }
    const size_t prompts = request_.prompts.size() + request_.prompt_ids.size();
    if (request_.truncate_prompt_tokens.has_value() && (prompts > 1 || request_.echo)) {
      return InvalidRequest("truncate_prompt_tokens",
                            "truncate_prompt_tokens is for one prompt, without echo.");
    }
    return std::nullopt;
  }

  GenerationRequest& request_;
  CanonicalPrompt tools_;
  CanonicalPrompt messages_;
  bool has_stream_options_ = false;
  bool chat_logprobs_ = false;
  std::optional<int32_t> top_logprobs_;
};

MaybeError OutOfRange(std::string_view field, std::string_view range) { return WrongType(field, range); }

}  // namespace

MaybeError ReadGenerationRequest(Route route, std::string& body, GenerationRequest& request) {
  json::document document;
  if (auto error = OpenDocument(body, document)) return JsonError(error, "");
  json::object object;
  if (document.get_object().get(object)) return InvalidRequest("", "The request body must be a JSON object.");
  return GenerationReader(route, request).Read(object);
}

MaybeError CheckSampling(const SamplingFields& sampling, bool max_tokens_zero_allowed) {
  if (sampling.max_tokens.has_value() && *sampling.max_tokens < (max_tokens_zero_allowed ? 0 : 1)) {
    return OutOfRange("max_tokens", "at least 1 (0 is for completions with echo)");
  }
  if (!(sampling.temperature >= 0 && sampling.temperature <= 2))
    return OutOfRange("temperature", "a number from 0 to 2");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) return OutOfRange("top_p", "above 0 and at most 1");
  if (sampling.top_k < 0) return OutOfRange("top_k", "0 or more");
  if (sampling.n < 1 || sampling.n > kMaxChoices) return OutOfRange("n", "an integer from 1 to 128");
  if (!(std::abs(sampling.frequency_penalty) <= 2))
    return OutOfRange("frequency_penalty", "a number from -2 to 2");
  if (!(std::abs(sampling.presence_penalty) <= 2))
    return OutOfRange("presence_penalty", "a number from -2 to 2");
  if (sampling.logprobs.has_value() && (*sampling.logprobs < 0 || *sampling.logprobs > kMaxTopLogprobs)) {
    return OutOfRange("logprobs", "an integer from 0 to 20");
  }
  if (sampling.stop.size() > kMaxStops) return OutOfRange("stop", "at most 16 strings");
  for (const std::string& stop : sampling.stop) {
    if (stop.empty()) return InvalidRequest("stop", "stop strings must not be empty.");
  }
  return std::nullopt;
}

MaybeError CheckCacheRetention(const CacheRetentionFields& retention) {
  const bool lasts = retention.cache_class >= CacheClass::kHigh;
  const bool right =
      lasts ? retention.ttl_s >= 1 && retention.ttl_s <= kMaxCacheTtlSeconds : retention.ttl_s == 0;
  if (right) return std::nullopt;
  return OutOfRange("cache_retention.ttl_s",
                    "from 1 to 86400 for high and pinned, and absent for low and normal");
}

}  // namespace kvring::openai
