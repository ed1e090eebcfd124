#include "replica/model/model_text.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"
#include "replica/model/gguf_text.h"
#include "replica/model/hf_tokenizer.h"
#include "replica/model/json_file.h"
#include "replica/model/model_config.h"

namespace kvring::replica {
namespace {

constexpr size_t kMaxTokenizerBytes = 256 << 20;
constexpr size_t kMaxConfigBytes = 4 << 20;

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

absl::StatusOr<std::optional<JsonFile>> OpenIfThere(const std::string& path) {
  if (!Exists(path)) return std::optional<JsonFile>();
  KVRING_ASSIGN_OR_RETURN(JsonFile file, JsonFile::Open(path, kMaxConfigBytes));
  return std::optional<JsonFile>(std::move(file));
}

// The reader of one directory.
class Folder {
 public:
  explicit Folder(std::string path) : path_(std::move(path)) {}

  absl::StatusOr<ModelText> Read() {
    KVRING_ASSIGN_OR_RETURN(const JsonFile tokenizer,
                            JsonFile::Open(Name("tokenizer.json"), kMaxTokenizerBytes));
    KVRING_ASSIGN_OR_RETURN(text_.tokenizer, ReadHfTokenizer(tokenizer));
    KVRING_ASSIGN_OR_RETURN(const JsonFile config, JsonFile::Open(Name("config.json"), kMaxConfigBytes));
    KVRING_RETURN_IF_ERROR(PadTokens(config.root()));
    KVRING_RETURN_IF_ERROR(ReadTokenizerConfig());
    KVRING_RETURN_IF_ERROR(ReadEnds(config.root()));
    if (!Exists(Name("chat_template.jinja"))) return std::move(text_);
    KVRING_ASSIGN_OR_RETURN(text_.chat_template, ReadFile(Name("chat_template.jinja"), kMaxTemplateBytes));
    return std::move(text_);
  }

 private:
  std::string Name(const char* file) const { return absl::StrCat(path_, "/", file); }

  absl::Status PadTokens(const JsonNode& config) {
    KVRING_ASSIGN_OR_RETURN(const JsonNode node, config.Get("vocab_size"));
    KVRING_ASSIGN_OR_RETURN(const int64_t rows, node.Int(1, kMaxModelDimension));
    TokenizerSpec& spec = text_.tokenizer;
    const size_t tokens = spec.tokens.size();
    if (static_cast<size_t>(rows) < tokens || static_cast<size_t>(rows) > tokens + kMaxVocabularyPadding) {
      return node.Bad(absl::StrCat("is ", rows, ", but ", spec.file, " has ", tokens, " tokens"));
    }
    spec.tokens.resize(static_cast<size_t>(rows));
    spec.types.resize(static_cast<size_t>(rows), static_cast<int32_t>(TokenType::kUnused));
    return absl::OkStatus();
  }

  absl::Status ReadTokenizerConfig() {
    KVRING_ASSIGN_OR_RETURN(const auto file, OpenIfThere(Name("tokenizer_config.json")));
    if (!file.has_value()) return absl::OkStatus();
    const JsonNode root = file->root();
    TokenizerSpec& spec = text_.tokenizer;
    KVRING_ASSIGN_OR_RETURN(const TokenId bos, NamedToken(root, "bos_token"));
    if (bos >= 0) spec.bos = bos;
    KVRING_ASSIGN_OR_RETURN(spec.add_bos, root.BoolOr("add_bos_token", spec.add_bos));
    KVRING_ASSIGN_OR_RETURN(const TokenId eos, NamedToken(root, "eos_token"));
    if (eos >= 0) spec.stops.push_back(eos);
    const auto chat = root.Find("chat_template");
    return chat.has_value() ? ReadTemplate(*chat) : absl::OkStatus();
  }

  // A token by its text, which stands alone or as {"content": …}; -1 where the key is absent.
  absl::StatusOr<TokenId> NamedToken(const JsonNode& root, const char* key) const {
    auto node = root.Find(key);
    if (!node.has_value()) return TokenId{-1};
    if (node->IsObject()) {
      KVRING_ASSIGN_OR_RETURN(JsonNode content, node->Get("content"));
      node = std::move(content);
    }
    KVRING_ASSIGN_OR_RETURN(const std::string text, node->String());
    const auto& tokens = text_.tokenizer.tokens;
    const auto found = std::find(tokens.begin(), tokens.end(), text);
    if (text.empty() || found == tokens.end())
      return node->Bad(absl::StrCat("'", text.substr(0, 64), "' is not in the vocabulary"));
    return static_cast<TokenId>(found - tokens.begin());
  }

  // One template, or several by name, of which "default" is meant.
  absl::Status ReadTemplate(const JsonNode& node) {
    if (!node.IsArray()) {
      KVRING_ASSIGN_OR_RETURN(text_.chat_template, node.String());
      return absl::OkStatus();
    }
    KVRING_ASSIGN_OR_RETURN(const auto list, node.Array());
    size_t index = 0;
    for (const auto element : list) {
      const JsonNode entry = node.Element(index++, element);
      KVRING_ASSIGN_OR_RETURN(const std::string name, entry.StringOr("name", ""));
      if (name != "default") continue;
      KVRING_ASSIGN_OR_RETURN(const JsonNode source, entry.Get("template"));
      KVRING_ASSIGN_OR_RETURN(text_.chat_template, source.String());
      return absl::OkStatus();
    }
    return node.Bad("has no template named default");
  }

  absl::Status ReadEnds(const JsonNode& config) {
    KVRING_ASSIGN_OR_RETURN(const auto generation, OpenIfThere(Name("generation_config.json")));
    if (generation.has_value() && generation->root().Find("eos_token_id").has_value())
      return AddEnds(*generation->root().Find("eos_token_id"));
    const auto node = config.Find("eos_token_id");
    return node.has_value() ? AddEnds(*node) : absl::OkStatus();
  }

  // An id or a list of them.
  absl::Status AddEnds(const JsonNode& node) {
    const auto last = static_cast<int64_t>(text_.tokenizer.tokens.size()) - 1;
    const auto add = [&](const JsonNode& n) -> absl::Status {
      KVRING_ASSIGN_OR_RETURN(const int64_t id, n.Int(0, last));
      text_.tokenizer.stops.push_back(static_cast<TokenId>(id));
      return absl::OkStatus();
    };
    if (!node.IsArray()) return add(node);
    KVRING_ASSIGN_OR_RETURN(const auto list, node.Array());
    size_t index = 0;
    for (const auto element : list) KVRING_RETURN_IF_ERROR(add(node.Element(index++, element)));
    return absl::OkStatus();
  }

  std::string path_;
  ModelText text_;
};

}  // namespace

absl::StatusOr<ModelText> ReadModelText(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return Folder(path).Read();
  KVRING_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  ModelText text;
  KVRING_ASSIGN_OR_RETURN(text.tokenizer, ReadTokenizerSpec(file));
  KVRING_ASSIGN_OR_RETURN(text.chat_template, ReadChatTemplate(file));
  return text;
}

}  // namespace kvring::replica
