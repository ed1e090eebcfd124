// SafetensorsFile: a validated, read-only view of a .safetensors file: header length u64 | JSON header |
// data. Parse checks the whole header before any view exists: its length against the file and 100 MiB, names
// against repetition, types against the format's list, each extent against shape x type, and that the extents
// cover the data exactly (no overlap, no hole, in any order of names). Errors are InvalidArgument "<file>:
// tensor "<name>": <what>". Immutable, safe from many threads; spans live as long as the file (moves keep
// them valid).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/runtime/files.h"

namespace kvring::replica {

struct SafetensorsTensor {
  std::string dtype;           // as written: "F32", "BF16", …
  std::vector<int64_t> shape;  // the outermost first
  std::span<const std::byte> data;
};

class SafetensorsFile {
 public:
  /// Maps and validates the file.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);
  /// Validates bytes that the caller keeps alive; `name` stands for the file in errors.
  static absl::StatusOr<SafetensorsFile> Parse(std::span<const std::byte> bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::map<std::string, SafetensorsTensor, std::less<>>& tensors() const { return tensors_; }

 private:
  std::string name_;
  std::optional<MappedFile> mapping_;
  std::map<std::string, SafetensorsTensor, std::less<>> tensors_;
};

}  // namespace kvring::replica
