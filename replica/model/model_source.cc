#include "replica/model/model_source.h"

#include <filesystem>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/runtime/files.h"
#include "common/status_macros.h"
#include "replica/model/hf_config.h"
#include "replica/model/hf_tensors.h"
#include "replica/model/json_file.h"

namespace kvring::replica {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr size_t kMaxIndexBytes = 64 << 20;
constexpr size_t kMaxShards = 4096;

// The files that an index names, each once.
absl::StatusOr<std::set<std::string>> ShardsOf(const std::string& index) {
  KVRING_ASSIGN_OR_RETURN(const JsonFile file, JsonFile::Open(index, kMaxIndexBytes));
  KVRING_ASSIGN_OR_RETURN(const JsonNode map, file.root().Get("weight_map"));
  KVRING_ASSIGN_OR_RETURN(const auto entries, map.Object());
  std::set<std::string> shards;
  for (const auto& [tensor, value] : entries) {
    const JsonNode entry = map.Member(tensor, value);
    KVRING_ASSIGN_OR_RETURN(const std::string name, entry.String());
    if (name.empty() || name.find('/') != std::string::npos) return entry.Bad("is no file of this folder");
    shards.insert(name);
    if (shards.size() > kMaxShards) return map.Bad("names too many files");
  }
  if (shards.empty()) return map.Bad("is empty");
  return shards;
}

}  // namespace

absl::StatusOr<ModelSource> ModelSource::Open(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return OpenDirectory(path);
  KVRING_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(path));
  return FromGguf(std::move(file));
}

absl::StatusOr<ModelSource> ModelSource::FromGguf(GgufFile file) {
  ModelSource source;
  KVRING_ASSIGN_OR_RETURN(source.config_, ReadModelConfig(file));
  source.tensors_ = TensorsOf(file);
  source.gguf_ = std::move(file);
  return source;
}

absl::StatusOr<ModelSource> ModelSource::OpenDirectory(const std::string& path) {
  const std::string config_path = path + "/config.json";
  KVRING_ASSIGN_OR_RETURN(const std::string text, ReadFile(config_path, kMaxConfigBytes));
  KVRING_ASSIGN_OR_RETURN(HfConfig config, ParseHfConfig(text, config_path));
  std::set<std::string> names = {"model.safetensors"};
  const std::string index = path + "/model.safetensors.index.json";
  std::error_code error;
  if (std::filesystem::exists(index, error)) {
    KVRING_ASSIGN_OR_RETURN(names, ShardsOf(index));
  }
  ModelSource source;
  for (const std::string& name : names) {
    KVRING_ASSIGN_OR_RETURN(SafetensorsFile shard, SafetensorsFile::Open(absl::StrCat(path, "/", name)));
    source.shards_.push_back(std::move(shard));
  }
  KVRING_ASSIGN_OR_RETURN(source.tensors_, MapHfTensors(source.shards_, config, path));
  source.config_ = std::move(config.model);
  return source;
}

}  // namespace kvring::replica
