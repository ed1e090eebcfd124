#include "replica/model/pretokenizer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace kvring::replica {
namespace {

// Members of Unicode's White_Space, for use inside a class.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr uint32_t kMatchLimit = 1'000'000;

struct RuleSet {
  std::string_view name;
  std::vector<std::string_view> expressions;
};

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

const std::vector<RuleSet>& RuleSets() {
  static const auto* const sets = new std::vector<RuleSet>{
      {"smollm", {R"(\p{N})", kGpt2}},
      {"gpt2", {kGpt2}},
      {"llama3",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}},
      {"qwen2",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"}}};
  return *sets;
}

std::string_view Canonical(std::string_view name) {
  if (name == "gpt-2" || name == "default") return "gpt2";
  if (name == "llama-bpe" || name == "llama-v3") return "llama3";
  return name;
}

// An expression of Oniguruma as PCRE2 reads it.
class Translation {
 public:
  explicit Translation(std::string_view expression) : from_(expression) {}

  absl::StatusOr<std::string> Run() {
    for (at_ = 0; at_ < from_.size(); ++at_) {
      const char c = from_[at_];
      if (c == '\\') {
        KVRING_RETURN_IF_ERROR(Escape());
        continue;
      }
      if (in_class_ && (c == '[' || from_.substr(at_, 2) == "&&")) return Unlike("a nested class");
      if (c == '[') in_class_ = true;
      if (c == ']') in_class_ = false;
      if (c == '}' && from_.substr(at_ + 1, 1) == "+") return Unlike("a possessive interval");
      to_ += c;
    }
    return std::move(to_);
  }

 private:
  absl::Status Escape() {
    if (at_ + 1 == from_.size()) return absl::InvalidArgumentError("pre-tokenizer: is no regular expression");
    const char c = from_[++at_];
    if (c == 's') {
      absl::StrAppend(&to_, in_class_ ? "" : "[", std::string(kSpace), in_class_ ? "" : "]");
    } else if (c == 'S' && !in_class_) {
      absl::StrAppend(&to_, "[^", std::string(kSpace), "]");
    } else if (absl::ascii_isalnum(static_cast<unsigned char>(c)) &&
               std::string_view("pPrntdDx").find(c) == std::string_view::npos) {
      return Unlike(absl::StrCat("\\", std::string(1, c)));
    } else {
      // The braces of \p{…} are no interval.
      const bool named =
          from_.substr(at_ + 1, 1) == "{" && std::string_view("pPx").find(c) != std::string_view::npos;
      const size_t end = named ? from_.find('}', at_) : at_;
      absl::StrAppend(&to_, "\\", std::string(from_.substr(at_, end - at_ + 1)));
      at_ = std::min(end, from_.size());
    }
    return absl::OkStatus();
  }

  absl::Status Unlike(std::string_view what) const {
    return absl::UnimplementedError(absl::StrCat("pre-tokenizer '", std::string(from_.substr(0, 200)),
                                                 "': ", std::string(what), " is not supported"));
  }

  std::string_view from_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string to_;
};

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

absl::StatusOr<Code> Compile(const std::string& expression) {
  KVRING_ASSIGN_OR_RETURN(const std::string translated, Translation(expression).Run());
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                          nullptr));
  if (code == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("pre-tokenizer '", expression.substr(0, 200), "': is no regular expression"));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

class Pretokenizer::Rules {
 public:
  explicit Rules(std::vector<Code> codes)
      : codes_(std::move(codes)), context_(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context_.get(), kMatchLimit);
  }

  using Piece = std::function<void(std::string_view)>;

  void Split(std::string_view text, size_t level, const Piece& piece) const {
    if (text.empty()) return;
    if (level == codes_.size()) return piece(text);
    const std::unique_ptr<pcre2_match_data, FreeMatch> match(pcre2_match_data_create(1, nullptr));
    size_t done = 0;
    while (done < text.size() && Match(level, text, done, match.get())) {
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.get());
      Split(text.substr(done, range[0] - done), level + 1, piece);
      Split(text.substr(range[0], range[1] - range[0]), level + 1, piece);
      done = range[1];
    }
    Split(text.substr(done), level + 1, piece);
  }

 private:
  bool Match(size_t level, std::string_view text, size_t from, pcre2_match_data* match) const {
    return pcre2_match(codes_[level].get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, context_.get()) > 0;
  }

  std::vector<Code> codes_;
  std::unique_ptr<pcre2_match_context, FreeContext> context_;
};

const std::string_view kByteLevelSplit = kGpt2;
const std::string_view kDigitSplit = R"(\p{N})";
const std::string_view kDigitsSplit = R"(\p{N}+)";
const std::string_view kMetaspaceSplit = R"([ \x{2581}]?[^ \x{2581}]+|[ \x{2581}])";

absl::StatusOr<std::vector<std::string>> NamedSplits(std::string_view name) {
  std::string known;
  for (const RuleSet& set : RuleSets()) {
    if (set.name == Canonical(name))
      return std::vector<std::string>(set.expressions.begin(), set.expressions.end());
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(set.name));
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre: unknown pre-tokenizer '",
                                               std::string(name), "' (known: ", known, ")"));
}

absl::StatusOr<Pretokenizer> Pretokenizer::Create(std::span<const std::string> splits) {
  std::vector<Code> codes;
  for (const std::string& split : splits) {
    KVRING_ASSIGN_OR_RETURN(Code code, Compile(split));
    codes.push_back(std::move(code));
  }
  return Pretokenizer(std::make_unique<Rules>(std::move(codes)));
}

Pretokenizer::Pretokenizer(std::unique_ptr<Rules> rules) : rules_(std::move(rules)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

void Pretokenizer::Split(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  rules_->Split(text, 0, piece);
}

}  // namespace kvring::replica
