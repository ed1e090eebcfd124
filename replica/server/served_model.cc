#include "replica/server/served_model.h"

#include "common/runtime/files.h"
#include "common/runtime/log.h"
#include "common/status_macros.h"
#include "replica/model/model_text.h"

namespace kvring::replica {
namespace {

// The last part of the path, without ".gguf".
std::string NameOfPath(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::string name = path.substr(path.find_last_of('/') + 1);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedModel>> ServedModel::Load(const std::string& path, std::string name,
                                                               const std::string& chat_template) {
  KVRING_ASSIGN_OR_RETURN(ModelText text, ReadModelText(path));
  if (!chat_template.empty()) {
    KVRING_ASSIGN_OR_RETURN(text.chat_template, ReadFile(chat_template, kMaxTemplateBytes));
  }
  std::unique_ptr<ServedModel> model(new ServedModel);
  model->name_ = name.empty() ? NameOfPath(path) : std::move(name);
  KVRING_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::Create(text.tokenizer));
  model->tokenizer_ = std::make_unique<Tokenizer>(std::move(tokenizer));
  if (text.chat_template.empty()) {
    Log(LogLevel::kWarn, "replica", "model has no chat template: chat requests are refused",
        {{"file", path}});
    return model;
  }
  KVRING_ASSIGN_OR_RETURN(model->chat_, ChatTemplate::Create(text.chat_template, *model->tokenizer_));
  return model;
}

}  // namespace kvring::replica
