// Fuzz target of the safetensors loader and of config.json: any bytes load or fail cleanly with a message,
// and what loads covers its data exactly. With clang it links libFuzzer; elsewhere safetensors_fuzz_driver.cc
// feeds it seeded mutations of a good file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>

#include "replica/model/hf_config.h"
#include "replica/model/hf_tensors.h"
#include "replica/model/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvring::replica;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = ParseHfConfig(text, "fuzz");
  if (!config.ok() && config.status().message().empty()) std::abort();
  auto file = SafetensorsFile::Parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  size_t covered = 8;
  for (const auto& [name, tensor] : file->tensors()) covered += tensor.data.size();
  uint64_t header = 0;
  for (int i = 7; i >= 0; --i) header = header << 8 | data[i];
  if (covered + header != size) std::abort();
  const std::span<const SafetensorsFile> shards(&*file, 1);
  return MapHfTensors(shards, HfConfig{}, "fuzz").ok() ? 0 : 1;
}
