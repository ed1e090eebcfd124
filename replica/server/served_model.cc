#include "replica/server/served_model.h"

#include "common/runtime/log.h"
#include "common/status_macros.h"
#include "replica/model/gguf_text.h"

namespace kvring::replica {
namespace {

std::string NameOfFile(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  std::string name = path.substr(slash == std::string::npos ? 0 : slash + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Load(const std::string& path, std::string name) {
  KVRING_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  std::unique_ptr<ServedModel> model(new ServedModel);
  model->name_ = name.empty() ? NameOfFile(path) : std::move(name);
  KVRING_ASSIGN_OR_RETURN(const TokenizerSpec spec, ReadTokenizerSpec(file));
  KVRING_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Create(spec));
  model->tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  KVRING_ASSIGN_OR_RETURN(const std::string source, ReadChatTemplate(file));
  if (source.empty()) {
    Log(LogLevel::kWarn, "replica", "model has no chat template: chat requests are refused",
        {{"file", path}});
    return model;
  }
  KVRING_ASSIGN_OR_RETURN(model->chat_, ChatTemplate::Create(source, *model->tokenizer_));
  return model;
}

}  // namespace kvring::replica
