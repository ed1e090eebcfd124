#include "deploy/cli/router_config.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <yaml-cpp/yaml.h>

#include "absl/strings/str_cat.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"

namespace kvring::cli {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kMaxFileBytes = size_t{4} << 20;

// Fills messages from YAML nodes by reflection: the schema is the proto, written once.
class Reader {
 public:
  explicit Reader(std::string name) : name_(std::move(name)) {}

  absl::Status ReadMessage(const YAML::Node& node, const std::string& path, Message& message) {
    if (!node.IsMap()) return Error(node, path, "must be a mapping");
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Error(entry.first, path, "has a key that is no name");
      const auto key = entry.first.as<std::string>();
      const std::string field_path = path.empty() ? key : absl::StrCat(path, ".", key);
      const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(key);
      if (field == nullptr) return Error(entry.first, field_path, "is not a field");
      KVRING_RETURN_IF_ERROR(field->is_repeated() ? ReadList(entry.second, field_path, *field, message)
                                                  : ReadField(entry.second, field_path, *field, message));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadList(const YAML::Node& node, const std::string& path, const FieldDescriptor& field,
                        Message& message) {
    if (!node.IsSequence()) return Error(node, path, "must be a list");
    for (size_t i = 0; i < node.size(); ++i) {
      const std::string element = absl::StrCat(path, "[", i, "]");
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        KVRING_RETURN_IF_ERROR(
            ReadMessage(node[i], element, *message.GetReflection()->AddMessage(&message, &field)));
      } else {
        if (!node[i].IsScalar()) return Error(node[i], element, "must be a string");
        message.GetReflection()->AddString(&message, &field, node[i].Scalar());
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadField(const YAML::Node& node, const std::string& path, const FieldDescriptor& field,
                         Message& message) {
    const auto* reflection = message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return ReadMessage(node, path, *reflection->MutableMessage(&message, &field));
      case FieldDescriptor::CPPTYPE_STRING:
        if (!node.IsScalar()) return Error(node, path, "must be a string");
        reflection->SetString(&message, &field, node.Scalar());
        return absl::OkStatus();
      case FieldDescriptor::CPPTYPE_BOOL:
        return Convert<bool>(node, path, "true or false",
                             [&](bool v) { reflection->SetBool(&message, &field, v); });
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Convert<double>(node, path, "a number",
                               [&](double v) { reflection->SetDouble(&message, &field, v); });
      case FieldDescriptor::CPPTYPE_UINT32:
        return Convert<uint32_t>(node, path, "a whole number",
                                 [&](uint32_t v) { reflection->SetUInt32(&message, &field, v); });
      case FieldDescriptor::CPPTYPE_UINT64:
        return Convert<uint64_t>(node, path, "a whole number",
                                 [&](uint64_t v) { reflection->SetUInt64(&message, &field, v); });
      default:
        return Convert<int64_t>(node, path, "a whole number",
                                [&](int64_t v) { reflection->SetInt64(&message, &field, v); });
    }
  }

  template <class T, class Set>
  absl::Status Convert(const YAML::Node& node, const std::string& path, const char* wanted, Set set) {
    T value{};
    const bool negative = std::is_unsigned_v<T> && node.IsScalar() && node.Scalar().starts_with("-");
    if (!node.IsScalar() || negative || !YAML::convert<T>::decode(node, value))
      return Error(node, path, absl::StrCat("must be ", wanted));
    set(value);
    return absl::OkStatus();
  }

  absl::Status Error(const YAML::Node& node, const std::string& path, const std::string& what) const {
    return absl::InvalidArgumentError(
        absl::StrCat(name_, ":", node.Mark().line + 1, ": ", path.empty() ? "the file" : path, " ", what));
  }

  std::string name_;
};

}  // namespace

absl::StatusOr<v1::RouterConfig> ParseRouterConfig(const std::string& yaml, const std::string& name) {
  v1::RouterConfig config;
  YAML::Node root;
  try {  // yaml-cpp reports syntax errors by throwing
    root = YAML::Load(yaml);
  } catch (const YAML::Exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(name, ":", error.mark.line + 1, ": ", error.msg));
  }
  if (root.IsNull()) return config;
  KVRING_RETURN_IF_ERROR(Reader(name).ReadMessage(root, "", config));
  return config;
}

absl::StatusOr<v1::RouterConfig> ReadRouterConfig(const std::string& path) {
  KVRING_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxFileBytes));
  return ParseRouterConfig(text, path);
}

}  // namespace kvring::cli
