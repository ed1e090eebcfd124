// ServedModel: the text side of the model that a replica serves: its name, tokenizer, chat template.
// Immutable after Load; thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "replica/model/chat_template.h"
#include "replica/model/tokenizer.h"

namespace kvring::replica {

class ServedModel {
 public:
  /// Reads tokenizer and template of a GGUF file or a Hugging Face directory (model_text.h). `name` empty:
  /// the path's last part without its ending. A model without a template loads: chat is then refused
  /// (MOD-11). `chat_template`: a file to read the template from instead, or empty.
  static absl::StatusOr<std::unique_ptr<ServedModel>> Load(const std::string& path, std::string name,
                                                           const std::string& chat_template = "");

  const std::string& name() const { return name_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  /// Null: the model has no chat template.
  const ChatTemplate* chat() const { return chat_.get(); }
  /// Whether a request's `model` means this one: its name, empty or "default".
  bool Answers(std::string_view model) const { return model.empty() || model == "default" || model == name_; }

 private:
  ServedModel() = default;
  std::string name_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> chat_;
};

}  // namespace kvring::replica
