// JsonFile: a JSON file of a model (config.json, tokenizer.json, …), checked as a whole before anything is
// read: valid UTF-8, at most 64 levels, no key twice in one object. JsonNode is a value in it that knows its
// place, so that errors say "<file>: "<path>" <what>". Nodes live as long as their file. Immutable.
#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace kvring::replica {

class JsonNode {
 public:
  JsonNode(const std::string& file, std::string path, simdjson::dom::element element)
      : file_(&file), path_(std::move(path)), element_(element) {}

  bool IsArray() const { return element_.is_array(); }
  bool IsObject() const { return element_.is_object(); }

  /// A member of an object; nothing where it is absent or null, or this is no object.
  std::optional<JsonNode> Find(std::string_view key) const;
  /// NotFound names the member.
  absl::StatusOr<JsonNode> Get(std::string_view key) const;
  /// A child with its place.
  JsonNode Member(std::string_view key, simdjson::dom::element element) const;
  JsonNode Element(size_t index, simdjson::dom::element element) const;

  /// InvalidArgument for another type or a number out of [low, high].
  absl::StatusOr<simdjson::dom::object> Object() const;
  absl::StatusOr<simdjson::dom::array> Array() const;
  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool() const;
  absl::StatusOr<int64_t> Int(int64_t low, int64_t high) const;
  absl::StatusOr<double> Number() const;

  /// The same of a member, or `otherwise` where it is absent.
  absl::StatusOr<std::string> StringOr(std::string_view key, std::string_view otherwise) const;
  absl::StatusOr<bool> BoolOr(std::string_view key, bool otherwise) const;

  /// Errors about this value, and about a member of it by name.
  absl::Status Bad(std::string_view what) const;
  absl::Status Bad(std::string_view key, std::string_view what) const;
  absl::Status Unsupported(std::string_view value) const;
  absl::Status Unsupported(std::string_view key, std::string_view value) const;

  const std::string& file() const { return *file_; }

 private:
  std::string PathOf(std::string_view key) const;
  std::string Place() const;

  const std::string* file_;
  std::string path_;
  simdjson::dom::element element_;
};

class JsonFile {
 public:
  static absl::StatusOr<JsonFile> Open(const std::string& path, size_t max_bytes);
  /// `name` stands for the file in errors. The root is an object.
  static absl::StatusOr<JsonFile> Parse(std::string_view text, std::string name);

  JsonNode root() const { return {*name_, "", parser_->doc.root()}; }

 private:
  JsonFile() = default;
  std::unique_ptr<std::string> name_;  // nodes point to it, moves keep it in place
  std::unique_ptr<simdjson::dom::parser> parser_;
};

}  // namespace kvring::replica
