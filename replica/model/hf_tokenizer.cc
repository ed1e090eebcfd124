#include "replica/model/hf_tokenizer.h"

#include <algorithm>
#include <array>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "replica/model/pretokenizer.h"
#include "replica/model/vocabulary.h"

namespace kvring::replica {
namespace {

class Reader {
 public:
  explicit Reader(const JsonFile& file) : root_(file.root()) { spec_.file = root_.file(); }

  absl::StatusOr<TokenizerSpec> Run() {
    KVRING_ASSIGN_OR_RETURN(const JsonNode model, root_.Get("model"));
    KVRING_RETURN_IF_ERROR(ReadNormalizer());
    KVRING_RETURN_IF_ERROR(ReadPretokenizer());
    KVRING_RETURN_IF_ERROR(ReadModel(model));
    KVRING_RETURN_IF_ERROR(ReadAddedTokens());
    KVRING_RETURN_IF_ERROR(MarkBytes(model));
    KVRING_RETURN_IF_ERROR(ReadPostProcessor());
    return std::move(spec_);
  }

 private:
  // --- normalizer ---

  absl::Status ReadNormalizer() {
    const auto node = root_.Find("normalizer");
    return node.has_value() ? ReadNormalizer(*node) : absl::OkStatus();
  }

  absl::Status ReadNormalizer(const JsonNode& node) {
    KVRING_ASSIGN_OR_RETURN(const std::string type, node.StringOr("type", ""));
    if (type == "Sequence")
      return ForEach(node, "normalizers", [&](const JsonNode& n) { return ReadNormalizer(n); });
    if (type == "NFC") {
      spec_.nfc = true;
      return absl::OkStatus();
    }
    if (type == "Prepend") {
      KVRING_RETURN_IF_ERROR(ExpectText(node, "prepend", kSpaceSymbol));
      return SetPrefix(node, PrefixSpace::kAlways);
    }
    if (type != "Replace") return node.Unsupported("type", type);
    KVRING_ASSIGN_OR_RETURN(const JsonNode pattern, node.Get("pattern"));
    KVRING_RETURN_IF_ERROR(ExpectText(pattern, "String", " "));
    KVRING_RETURN_IF_ERROR(ExpectText(node, "content", kSpaceSymbol));
    spec_.alphabet = TokenAlphabet::kSentencePiece;
    return absl::OkStatus();
  }

  // --- pre-tokenizer ---

  absl::Status ReadPretokenizer() {
    const auto node = root_.Find("pre_tokenizer");
    if (!node.has_value()) return absl::OkStatus();
    KVRING_RETURN_IF_ERROR(ReadPretokenizer(*node, true));
    if (byte_level_ && spec_.alphabet == TokenAlphabet::kSentencePiece)
      return node->Unsupported("ByteLevel with spaces as U+2581");
    return absl::OkStatus();
  }

  // `alone`: no other pre-tokenizer cuts the text before this one.
  absl::Status ReadPretokenizer(const JsonNode& node, bool alone) {
    if (byte_level_) return node.Unsupported("a step behind ByteLevel");
    KVRING_ASSIGN_OR_RETURN(const std::string type, node.StringOr("type", ""));
    if (type == "Sequence") {
      return ForEach(node, "pretokenizers",
                     [&](const JsonNode& n) { return ReadPretokenizer(n, alone && spec_.splits.empty()); });
    }
    if (type == "Split") return ReadSplit(node);
    if (type == "Digits") return ReadDigits(node);
    if (type == "ByteLevel") return ReadByteLevel(node, alone);
    if (type == "Metaspace") return ReadMetaspace(node, alone);
    return node.Unsupported("type", type);
  }

  absl::Status ReadSplit(const JsonNode& node) {
    KVRING_ASSIGN_OR_RETURN(const std::string behavior, node.StringOr("behavior", ""));
    if (behavior != "Isolated") return node.Unsupported("behavior", behavior);
    KVRING_ASSIGN_OR_RETURN(const JsonNode pattern, node.Get("pattern"));
    KVRING_ASSIGN_OR_RETURN(const JsonNode regex, pattern.Get("Regex"));
    KVRING_ASSIGN_OR_RETURN(std::string expression, regex.String());
    spec_.splits.push_back(std::move(expression));
    return absl::OkStatus();
  }

  absl::Status ReadDigits(const JsonNode& node) {
    KVRING_ASSIGN_OR_RETURN(const bool each, node.BoolOr("individual_digits", false));
    spec_.splits.emplace_back(each ? kDigitSplit : kDigitsSplit);
    return absl::OkStatus();
  }

  absl::Status ReadByteLevel(const JsonNode& node, bool alone) {
    byte_level_ = true;
    KVRING_ASSIGN_OR_RETURN(const bool prefix, node.BoolOr("add_prefix_space", true));
    if (prefix && !alone) return node.Unsupported("add_prefix_space", "true behind another step");
    if (prefix) spec_.prefix_space = PrefixSpace::kMissing;
    KVRING_ASSIGN_OR_RETURN(const bool splits, node.BoolOr("use_regex", true));
    if (splits) spec_.splits.emplace_back(kByteLevelSplit);
    return absl::OkStatus();
  }

  absl::Status ReadMetaspace(const JsonNode& node, bool alone) {
    if (!alone) return node.Unsupported("Metaspace behind another step");
    KVRING_RETURN_IF_ERROR(ExpectText(node, "replacement", kSpaceSymbol));
    spec_.alphabet = TokenAlphabet::kSentencePiece;
    // Older files say add_prefix_space.
    KVRING_ASSIGN_OR_RETURN(const bool prefix, node.BoolOr("add_prefix_space", true));
    KVRING_ASSIGN_OR_RETURN(const std::string scheme,
                            node.StringOr("prepend_scheme", prefix ? "always" : "never"));
    KVRING_ASSIGN_OR_RETURN(const bool splits, node.BoolOr("split", true));
    if (splits) spec_.splits.emplace_back(kMetaspaceSplit);
    if (scheme == "never") return absl::OkStatus();
    if (scheme != "always" && scheme != "first") return node.Unsupported("prepend_scheme", scheme);
    return SetPrefix(node, scheme == "first" ? PrefixSpace::kFirstOnly : PrefixSpace::kMissing);
  }

  // --- model ---

  absl::Status ReadModel(const JsonNode& model) {
    KVRING_ASSIGN_OR_RETURN(const std::string type, model.StringOr("type", "BPE"));
    if (type != "BPE") return model.Unsupported("type", type);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      KVRING_ASSIGN_OR_RETURN(const std::string text, model.StringOr(key, ""));
      if (!text.empty()) return model.Unsupported(key, text);
    }
    if (const auto dropout = model.Find("dropout"); dropout.has_value()) {
      KVRING_ASSIGN_OR_RETURN(const double value, dropout->Number());
      if (value != 0) return dropout->Unsupported(absl::StrCat(value));
    }
    KVRING_ASSIGN_OR_RETURN(spec_.whole_words, model.BoolOr("ignore_merges", false));
    KVRING_ASSIGN_OR_RETURN(spec_.fuse_unknown, model.BoolOr("fuse_unk", false));
    if (!byte_level_) spec_.alphabet = TokenAlphabet::kSentencePiece;
    KVRING_RETURN_IF_ERROR(ReadVocabulary(model));
    return ReadMerges(model);
  }

  absl::Status ReadVocabulary(const JsonNode& model) {
    KVRING_ASSIGN_OR_RETURN(const JsonNode vocab, model.Get("vocab"));
    KVRING_ASSIGN_OR_RETURN(const auto entries, vocab.Object());
    entries_ = entries.size();
    if (const auto added = root_.Find("added_tokens"); added.has_value()) {
      KVRING_ASSIGN_OR_RETURN(const auto list, added->Array());
      entries_ += list.size();
    }
    for (const auto& [token, value] : entries) {
      int64_t id = 0;
      if (value.get_int64().get(id) != simdjson::SUCCESS) return vocab.Member(token, value).Bad("is no id");
      KVRING_RETURN_IF_ERROR(Place(vocab.Member("", value), std::string(token), id, TokenType::kNormal));
      ids_.emplace(token, static_cast<TokenId>(id));
    }
    KVRING_ASSIGN_OR_RETURN(const std::string unknown, model.StringOr("unk_token", ""));
    if (unknown.empty()) return absl::OkStatus();
    const auto found = ids_.find(unknown);
    if (found == ids_.end()) return model.Bad("unk_token", "is not in the vocabulary");
    spec_.unknown = found->second;
    return absl::OkStatus();
  }

  // Puts a token at its id; the vocabulary may come in any order.
  absl::Status Place(const JsonNode& node, std::string token, int64_t id, TokenType type) {
    if (id < 0 || id >= static_cast<int64_t>(entries_ + kMaxIdGap)) {
      return node.Bad(absl::StrCat("has token '", token.substr(0, 64), "' with id ", id,
                                   ", which is not 0 to ", entries_ + kMaxIdGap - 1));
    }
    const auto at = static_cast<size_t>(id);
    if (at >= spec_.tokens.size()) {
      spec_.tokens.resize(at + 1);
      spec_.types.resize(at + 1, static_cast<int32_t>(TokenType::kUnused));
    }
    const bool taken = spec_.types[at] != static_cast<int32_t>(TokenType::kUnused);
    if (taken && spec_.tokens[at] != token) {
      return node.Bad(absl::StrCat("has two tokens with id ", id, ": '", spec_.tokens[at].substr(0, 64),
                                   "' and '", token.substr(0, 64), "'"));
    }
    spec_.tokens[at] = std::move(token);
    spec_.types[at] = static_cast<int32_t>(type);
    return absl::OkStatus();
  }

  // "left right" or ["left", "right"].
  absl::Status ReadMerges(const JsonNode& model) {
    KVRING_ASSIGN_OR_RETURN(const JsonNode merges, model.Get("merges"));
    KVRING_ASSIGN_OR_RETURN(const auto list, merges.Array());
    size_t index = 0;
    for (const auto element : list) {
      const auto bad = [&] { return merges.Element(index, element).Bad("is no pair of tokens"); };
      std::string_view text;
      if (element.get_string().get(text) == simdjson::SUCCESS) {
        const size_t space = text.find(' ');
        if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
          return bad();
        spec_.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
      } else {
        std::string_view left;
        std::string_view right;
        simdjson::dom::array pair;
        if (element.get_array().get(pair) != simdjson::SUCCESS || pair.size() != 2 ||
            pair.at(0).get_string().get(left) != simdjson::SUCCESS ||
            pair.at(1).get_string().get(right) != simdjson::SUCCESS) {
          return bad();
        }
        spec_.merges.emplace_back(left, right);
      }
      ++index;
    }
    return absl::OkStatus();
  }

  // --- added tokens, bytes, BOS ---

  absl::Status ReadAddedTokens() {
    if (!root_.Find("added_tokens").has_value()) return absl::OkStatus();
    return ForEach(root_, "added_tokens", [&](const JsonNode& node) { return ReadAddedToken(node); });
  }

  absl::Status ReadAddedToken(const JsonNode& node) {
    for (const char* key : {"single_word", "lstrip", "rstrip"}) {
      KVRING_ASSIGN_OR_RETURN(const bool value, node.BoolOr(key, false));
      if (value) return node.Unsupported(key, "true");
    }
    KVRING_ASSIGN_OR_RETURN(const bool normalized, node.BoolOr("normalized", false));
    const bool changes =
        spec_.alphabet == TokenAlphabet::kSentencePiece && root_.Find("normalizer").has_value();
    if (normalized && changes) return node.Unsupported("normalized", "true");
    KVRING_ASSIGN_OR_RETURN(const JsonNode content, node.Get("content"));
    KVRING_ASSIGN_OR_RETURN(std::string text, content.String());
    if (text.empty()) return content.Bad("is empty");
    KVRING_ASSIGN_OR_RETURN(const JsonNode id_node, node.Get("id"));
    KVRING_ASSIGN_OR_RETURN(const int64_t id, id_node.Int(0, INT32_MAX));
    KVRING_ASSIGN_OR_RETURN(const bool special, node.BoolOr("special", false));
    const auto known = ids_.try_emplace(text, static_cast<TokenId>(id));
    if (known.first->second != id) {
      return id_node.Bad(absl::StrCat("is ", id, ", but the vocabulary gives '", text.substr(0, 64),
                                      "' the id ", known.first->second));
    }
    return Place(node, std::move(text), id, special ? TokenType::kControl : TokenType::kUserDefined);
  }

  // Bytes count as such where every one has its token; others of their kind are plain text.
  absl::Status MarkBytes(const JsonNode& model) {
    KVRING_ASSIGN_OR_RETURN(const bool fallback, model.BoolOr("byte_fallback", false));
    if (!fallback) return absl::OkStatus();
    if (byte_level_) return model.Unsupported("byte_fallback", "true with ByteLevel");
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(absl::StrFormat("<0x%02X>", byte));
      if (found == ids_.end()) continue;
      spec_.types[static_cast<size_t>(found->second)] = static_cast<int32_t>(TokenType::kByte);
    }
    return absl::OkStatus();
  }

  absl::Status ReadPostProcessor() {
    const auto node = root_.Find("post_processor");
    return node.has_value() ? ReadPostProcessor(*node) : absl::OkStatus();
  }

  absl::Status ReadPostProcessor(const JsonNode& node) {
    KVRING_ASSIGN_OR_RETURN(const std::string type, node.StringOr("type", ""));
    if (type == "ByteLevel") return absl::OkStatus();
    if (type == "Sequence") {
      return ForEach(node, "processors", [&](const JsonNode& n) { return ReadPostProcessor(n); });
    }
    if (type != "TemplateProcessing") return node.Unsupported("type", type);
    bool behind_text = false;
    return ForEach(node, "single",
                   [&](const JsonNode& piece) { return ReadTemplatePiece(piece, behind_text); });
  }

  absl::Status ReadTemplatePiece(const JsonNode& piece, bool& behind_text) {
    const auto special = piece.Find("SpecialToken");
    if (!special.has_value()) {
      behind_text = true;
      return absl::OkStatus();
    }
    KVRING_ASSIGN_OR_RETURN(const std::string text, special->StringOr("id", ""));
    if (behind_text || spec_.add_bos)
      return special->Unsupported("id", absl::StrCat("a second token, '", text, "',"));
    const auto found = ids_.find(text);
    if (found == ids_.end()) return special->Bad("id", "is not in the vocabulary");
    spec_.bos = found->second;
    spec_.add_bos = true;
    return absl::OkStatus();
  }

  // --- parts of the above ---

  template <class Body>
  absl::Status ForEach(const JsonNode& node, std::string_view key, const Body& body) {
    KVRING_ASSIGN_OR_RETURN(const JsonNode list, node.Get(key));
    KVRING_ASSIGN_OR_RETURN(const auto array, list.Array());
    size_t index = 0;
    for (const auto element : array) KVRING_RETURN_IF_ERROR(body(list.Element(index++, element)));
    return absl::OkStatus();
  }

  static absl::Status ExpectText(const JsonNode& node, std::string_view key, std::string_view expected) {
    KVRING_ASSIGN_OR_RETURN(const std::string text, node.StringOr(key, ""));
    return text == expected ? absl::OkStatus() : node.Unsupported(key, absl::StrCat("'", text, "'"));
  }

  absl::Status SetPrefix(const JsonNode& node, PrefixSpace prefix) {
    if (spec_.prefix_space != PrefixSpace::kNone) return node.Unsupported("a second prefix space");
    spec_.prefix_space = prefix;
    return absl::OkStatus();
  }

  JsonNode root_;
  TokenizerSpec spec_;
  absl::flat_hash_map<std::string, TokenId> ids_;
  size_t entries_ = 0;
  bool byte_level_ = false;
};

}  // namespace

absl::StatusOr<TokenizerSpec> ReadHfTokenizer(const JsonFile& file) { return Reader(file).Run(); }

}  // namespace kvring::replica
