#include "replica/model/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace kvring::replica::jinja {
namespace {

constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", "<=", ">=", "(", ")", "[",
                                           "]",  "{",  "}",  ",",  ".",  ":",  "|", "=", "<",
                                           ">",  "+",  "-",  "*",  "/",  "%",  "~"};

bool IsNameStart(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool IsNamePart(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) {
      const size_t open = FindOpen();
      AddText(open);
      if (open == std::string_view::npos) break;
      KVRING_RETURN_IF_ERROR(Tag());
    }
    Add(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  size_t FindOpen() const {
    for (size_t i = at_; i + 1 < source_.size(); ++i) {
      if (source_[i] == '{' && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#'))
        return i;
    }
    return std::string_view::npos;
  }

  // The text up to `open`, with what the tag before took from its start and the tag after takes from its end.
  void AddText(size_t open) {
    const size_t end = std::min(open, source_.size());
    size_t begin = at_;
    if (trim_next_) {
      begin = std::min(source_.find_first_not_of(" \t\r\n", at_), end);
    } else if (drop_newline_ && source_.substr(at_, end - at_).starts_with("\n")) {
      ++begin;
    }
    std::string_view text = source_.substr(begin, end - begin);
    if (open != std::string_view::npos) TrimEnd(text, open, begin == 0 || source_[begin - 1] == '\n');
    if (!text.empty()) Add(Token::kText, text);
    CountLines(source_.substr(at_, end - at_));
    at_ = end;
    trim_next_ = drop_newline_ = false;
  }

  // `{%-` takes all white space before it; `{%` and `{#` take blanks when nothing else stands before them on
  // their line.
  void TrimEnd(std::string_view& text, size_t open, bool starts_line) const {
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    if (sign == '-') {
      text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
      return;
    }
    if (source_[open + 1] == '{' || sign == '+') return;
    const size_t last = text.find_last_not_of(" \t");
    const bool alone = last == std::string_view::npos ? starts_line : text[last] == '\n';
    if (alone) text = text.substr(0, last + 1);
  }

  absl::Status Tag() {
    const char kind = source_[at_ + 1];
    if (kind == '#') return Comment();
    Add(kind == '{' ? Token::kOpenOutput : Token::kOpenBlock, "");
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    const std::string_view close = kind == '{' ? "}}" : "%}";
    while (true) {
      SkipSpace();
      if (at_ >= source_.size()) return Error("a tag is not closed");
      if (Closes(close)) break;
      KVRING_RETURN_IF_ERROR(Expression());
    }
    drop_newline_ = kind == '%';
    Add(kind == '{' ? Token::kCloseOutput : Token::kCloseBlock, "");
    return absl::OkStatus();
  }

  bool Closes(std::string_view close) {
    const std::string_view rest = source_.substr(at_);
    const bool dash = rest.starts_with("-");
    if (!rest.substr(dash ? 1 : 0).starts_with(close)) return false;
    if (close == "}}" && depth_ > 0) return false;  // the end of a dict, not of the tag
    at_ += close.size() + (dash ? 1 : 0);
    trim_next_ = dash;
    return true;
  }

  absl::Status Comment() {
    const size_t end = source_.find("#}", at_ + 2);
    if (end == std::string_view::npos) return Error("a comment is not closed");
    trim_next_ = source_[end - 1] == '-';
    drop_newline_ = true;
    CountLines(source_.substr(at_, end + 2 - at_));
    at_ = end + 2;
    return absl::OkStatus();
  }

  absl::Status Expression() {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return String(c);
    if (IsNameStart(c)) {
      const size_t begin = at_;
      while (at_ < source_.size() && IsNamePart(source_[at_])) ++at_;
      Add(Token::kName, source_.substr(begin, at_ - begin));
      return absl::OkStatus();
    }
    if (std::isdigit(static_cast<unsigned char>(c))) return Number();
    for (std::string_view op : kOperators) {
      if (!source_.substr(at_).starts_with(op)) continue;
      if (op == "{") ++depth_;
      if (op == "}") --depth_;
      Add(Token::kOperator, op);
      at_ += op.size();
      return absl::OkStatus();
    }
    return Error(absl::StrCat("unexpected character '", std::string(1, c), "'"));
  }

  absl::Status Number() {
    const size_t begin = at_;
    auto digits = [&] {
      while (at_ < source_.size() && std::isdigit(static_cast<unsigned char>(source_[at_]))) ++at_;
    };
    digits();
    const bool fraction = at_ + 1 < source_.size() && source_[at_] == '.' &&
                          std::isdigit(static_cast<unsigned char>(source_[at_ + 1]));
    if (fraction) {
      ++at_;
      digits();
    }
    if (at_ - begin > 18) return Error("a number is too long");
    Add(fraction ? Token::kFloat : Token::kInteger, source_.substr(begin, at_ - begin));
    return absl::OkStatus();
  }

  absl::Status String(char quote) {
    std::string value;
    for (++at_; at_ < source_.size() && source_[at_] != quote; ++at_) {
      if (source_[at_] != '\\') {
        value += source_[at_];
        continue;
      }
      if (++at_ >= source_.size()) break;
      static constexpr std::string_view kFrom = "nrt", kTo = "\n\r\t";
      const size_t escape = kFrom.find(source_[at_]);
      if (escape != std::string_view::npos) {
        value += kTo[escape];
      } else {
        if (source_[at_] != '\\' && source_[at_] != '\'' && source_[at_] != '"') value += '\\';
        value += source_[at_];
      }
    }
    if (at_ >= source_.size()) return Error("a string is not closed");
    ++at_;
    CountLines(value);
    Add(Token::kString, value);
    return absl::OkStatus();
  }

  void SkipSpace() {
    while (at_ < source_.size() && std::isspace(static_cast<unsigned char>(source_[at_]))) {
      if (source_[at_] == '\n') ++line_;
      ++at_;
    }
  }

  void CountLines(std::string_view text) {
    line_ += static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  void Add(Token::Kind kind, std::string_view text) { tokens_.push_back({kind, std::string(text), line_}); }
  absl::Status Error(const std::string& what) const {
    return absl::InvalidArgumentError(absl::StrCat("chat template, line ", line_, ": ", what));
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;              // open braces of dicts
  bool trim_next_ = false;     // the tag before ended with a dash
  bool drop_newline_ = false;  // the tag before was a block or comment
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<Token>> Lex(std::string_view source) { return Lexer(source).Run(); }

}  // namespace kvring::replica::jinja
