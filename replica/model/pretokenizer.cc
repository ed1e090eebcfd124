#include "replica/model/pretokenizer.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/check.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace kvring::replica {
namespace {

// Members of Unicode's White_Space, for use inside a class.
constexpr char kSpace[] =
    R"(\t-\r \x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// Each expression is applied in turn inside the pieces of the one before; what no match covers is a piece of
// its own.
// `<s>` stands for white space inside a class, `<S>` and `<nS>` for the classes [white space] and [^white
// space].
struct RuleSet {
  std::string_view name;
  std::vector<std::string_view> expressions;
};

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^<s>\p{L}\p{N}]+|<S>+(?!<nS>)|<S>+)";

const std::vector<RuleSet>& RuleSets() {
  static const auto* const sets = new std::vector<RuleSet>{
      {"smollm", {R"(\p{N})", kGpt2}},
      {"gpt2", {kGpt2}},
      {"llama3",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^<s>\p{L}\p{N}]+[\r\n]*|<S>*[\r\n]+|<S>+(?!<nS>)|<S>+)"}},
      {"qwen2",
       {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^<s>\p{L}\p{N}]+[\r\n]*|<S>*[\r\n]+|<S>+(?!<nS>)|<S>+)"}}};
  return *sets;
}

std::string_view Canonical(std::string_view name) {
  if (name == "gpt-2" || name == "default") return "gpt2";
  if (name == "llama-bpe" || name == "llama-v3") return "llama3";
  return name;
}

std::string WithSpaces(std::string_view expression) {
  return absl::StrReplaceAll(
      absl::string_view(expression.data(), expression.size()),
      {{"<nS>", absl::StrCat("[^", kSpace, "]")}, {"<S>", absl::StrCat("[", kSpace, "]")}, {"<s>", kSpace}});
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

Code Compile(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE at = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr));
  KVRING_CHECK(code != nullptr);  // the expressions are our own
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  return code;
}

}  // namespace

class Pretokenizer::Rules {
 public:
  explicit Rules(const RuleSet& set) {
    for (std::string_view expression : set.expressions) codes_.push_back(Compile(WithSpaces(expression)));
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
                       PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY, match, nullptr) > 0;
  }

  std::vector<Code> codes_;
};

absl::StatusOr<Pretokenizer> Pretokenizer::Create(std::string_view name) {
  std::string known;
  for (const RuleSet& set : RuleSets()) {
    if (set.name == Canonical(name)) return Pretokenizer(std::make_unique<Rules>(set));
    absl::StrAppend(&known, known.empty() ? "" : ", ", std::string(set.name));
  }
  return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.pre: unknown pre-tokenizer '",
                                               std::string(name), "' (known: ", known, ")"));
}

Pretokenizer::Pretokenizer(std::unique_ptr<Rules> rules) : rules_(std::move(rules)) {}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer& Pretokenizer::operator=(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

void Pretokenizer::Split(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  rules_->Split(text, 0, piece);
}

}  // namespace kvring::replica
