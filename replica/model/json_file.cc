#include "replica/model/json_file.h"

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "common/absl_view.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"

namespace kvring::replica {
namespace {

namespace json = simdjson::dom;

constexpr int kMaxDepth = 64;
constexpr size_t kShownBytes = 100;

std::string Shown(std::string_view text) { return std::string(text.substr(0, kShownBytes)); }

absl::Status CheckNoRepeats(const JsonNode& node, json::element element, int depth);

absl::Status CheckMembers(const JsonNode& node, json::object object, int depth) {
  absl::flat_hash_set<absl::string_view> keys;
  for (const auto& [key, value] : object) {
    if (!keys.insert(Absl(key)).second) return node.Bad(key, "is there twice");
    if (!value.is_object() && !value.is_array()) continue;
    KVRING_RETURN_IF_ERROR(CheckNoRepeats(node.Member(key, value), value, depth + 1));
  }
  return absl::OkStatus();
}

absl::Status CheckNoRepeats(const JsonNode& node, json::element element, int depth) {
  if (depth > kMaxDepth) return node.Bad("nests too deeply");
  if (element.is_object()) return CheckMembers(node, json::object(element), depth);
  if (!element.is_array()) return absl::OkStatus();
  size_t index = 0;
  for (const json::element child : json::array(element)) {
    if (child.is_object() || child.is_array()) {
      KVRING_RETURN_IF_ERROR(CheckNoRepeats(node.Element(index, child), child, depth + 1));
    }
    ++index;
  }
  return absl::OkStatus();
}

}  // namespace

std::string JsonNode::PathOf(std::string_view key) const {
  return path_.empty() ? Shown(key) : absl::StrCat(path_, ".", Shown(key));
}

std::string JsonNode::Place() const { return absl::StrCat(*file_, ": \"", path_, "\" "); }

std::optional<JsonNode> JsonNode::Find(std::string_view key) const {
  json::element found;
  if (!IsObject() || element_.at_key(key).get(found) != simdjson::SUCCESS || found.is_null()) return {};
  return Member(key, found);
}

absl::StatusOr<JsonNode> JsonNode::Get(std::string_view key) const {
  if (auto found = Find(key)) return *std::move(found);
  return absl::NotFoundError(absl::StrCat(*file_, ": \"", PathOf(key), "\" is missing"));
}

JsonNode JsonNode::Member(std::string_view key, json::element element) const {
  return {*file_, PathOf(key), element};
}
JsonNode JsonNode::Element(size_t index, json::element element) const {
  return {*file_, absl::StrCat(path_, "[", index, "]"), element};
}

absl::StatusOr<json::object> JsonNode::Object() const {
  if (!element_.is_object()) return Bad("is no object");
  return json::object(element_);
}

absl::StatusOr<json::array> JsonNode::Array() const {
  if (!element_.is_array()) return Bad("is no array");
  return json::array(element_);
}

absl::StatusOr<std::string> JsonNode::String() const {
  std::string_view text;
  if (element_.get_string().get(text) != simdjson::SUCCESS) return Bad("is no string");
  return std::string(text);
}

absl::StatusOr<bool> JsonNode::Bool() const {
  bool value = false;
  if (element_.get_bool().get(value) != simdjson::SUCCESS) return Bad("is neither true nor false");
  return value;
}

absl::StatusOr<int64_t> JsonNode::Int(int64_t low, int64_t high) const {
  int64_t value = 0;
  if (element_.get_int64().get(value) == simdjson::SUCCESS && value >= low && value <= high) return value;
  return Bad(absl::StrCat("is no whole number from ", low, " to ", high));
}

absl::StatusOr<double> JsonNode::Number() const {
  double value = 0;
  if (element_.get_double().get(value) != simdjson::SUCCESS) return Bad("is no number");
  return value;
}

absl::StatusOr<std::string> JsonNode::StringOr(std::string_view key, std::string_view otherwise) const {
  const auto found = Find(key);
  return found.has_value() ? found->String() : std::string(otherwise);
}

absl::StatusOr<bool> JsonNode::BoolOr(std::string_view key, bool otherwise) const {
  const auto found = Find(key);
  return found.has_value() ? found->Bool() : otherwise;
}

absl::Status JsonNode::Bad(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(Place(), std::string(what)));
}
absl::Status JsonNode::Bad(std::string_view key, std::string_view what) const {
  return Member(key, element_).Bad(what);
}
absl::Status JsonNode::Unsupported(std::string_view value) const {
  return absl::UnimplementedError(absl::StrCat(Place(), "is ", Shown(value), ", which is not supported"));
}
absl::Status JsonNode::Unsupported(std::string_view key, std::string_view value) const {
  return Member(key, element_).Unsupported(value);
}

absl::StatusOr<JsonFile> JsonFile::Open(const std::string& path, size_t max_bytes) {
  KVRING_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  return Parse(text, path);
}

absl::StatusOr<JsonFile> JsonFile::Parse(std::string_view text, std::string name) {
  JsonFile file;
  file.name_ = std::make_unique<std::string>(std::move(name));
  file.parser_ = std::make_unique<json::parser>();
  json::element root;
  const auto error = file.parser_->parse(text.data(), text.size()).get(root);
  if (error != simdjson::SUCCESS || !root.is_object()) {
    const char* why =
        error == simdjson::SUCCESS ? "its root is another type" : simdjson::error_message(error);
    return absl::InvalidArgumentError(absl::StrCat(*file.name_, ": is no JSON object: ", why));
  }
  KVRING_RETURN_IF_ERROR(CheckNoRepeats(file.root(), root, 0));
  return file;
}

}  // namespace kvring::replica
