#include "replica/model/pretokenizer.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/status_macros.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace kvring::replica {
namespace {

// Members of Unicode's White_Space, for use inside a class.
constexpr std::string_view kSpace =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
// What became a letter or number after Unicode 14, the version of PCRE2 10.42, up to 16, that of Hugging Face
// tokenizers 0.23; for use inside a class.
constexpr std::string_view kNewLetters =
    R"(\x{1C89}-\x{1C8A}\x{A7CB}-\x{A7CD}\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D4A}-\x{10D65}\x{10D6F}-\x{10D85})"
    R"(\x{10EC2}-\x{10EC4}\x{1123F}-\x{11240}\x{11380}-\x{11389}\x{1138B}\x{1138E}\x{11390}-\x{113B5}\x{113B7})"
    R"(\x{113D1}\x{113D3}\x{11BC0}-\x{11BE0}\x{11F02}\x{11F04}-\x{11F10}\x{11F12}-\x{11F33}\x{1342F})"
    R"(\x{13441}-\x{13446}\x{13460}-\x{143FA}\x{16100}-\x{1611D}\x{16D40}-\x{16D6C}\x{18CFF}\x{1B132}\x{1B155})"
    R"(\x{1DF25}-\x{1DF2A}\x{1E030}-\x{1E06D}\x{1E4D0}-\x{1E4EB}\x{1E5D0}-\x{1E5ED}\x{1E5F0}\x{2B739})"
    R"(\x{2EBF0}-\x{2EE5D}\x{31350}-\x{323AF})";
constexpr std::string_view kNewNumbers =
    R"(\x{10D40}-\x{10D49}\x{116D0}-\x{116E3}\x{11BF0}-\x{11BF9}\x{11F50}-\x{11F59}\x{16130}-\x{16139})"
    R"(\x{16D70}-\x{16D79}\x{1CCF0}-\x{1CCF9}\x{1D2C0}-\x{1D2D3}\x{1E4F0}-\x{1E4F9}\x{1E5F1}-\x{1E5FA})";
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
      Class(kSpace);
    } else if (from_.substr(at_, 4) == "p{L}" || from_.substr(at_, 4) == "p{N}") {
      const bool letters = from_[at_ + 2] == 'L';
      Class(absl::StrCat(letters ? R"(\p{L})" : R"(\p{N})", Absl(letters ? kNewLetters : kNewNumbers)));
      at_ += 3;
    } else if (c == 'S' && !in_class_) {
      absl::StrAppend(&to_, "[^", Absl(kSpace), "]");
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

  void Class(std::string_view members) {
    absl::StrAppend(&to_, in_class_ ? "" : "[", Absl(members), in_class_ ? "" : "]");
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
