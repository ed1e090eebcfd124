// Fuzz target of the GGUF loader: any bytes load or fail cleanly, and what loads can be read completely. With
// clang it links libFuzzer; elsewhere gguf_fuzz_driver.cc feeds it seeded mutations of a good file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "replica/model/dequantize.h"
#include "replica/model/gguf.h"
#include "replica/model/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kvring::replica;
  const auto file = GgufFile::Parse(std::as_bytes(std::span(data, size)), "fuzz");
  if (!file.ok()) {
    if (file.status().message().empty()) std::abort();
    return 0;
  }
  size_t read = ReadModelConfig(*file).ok() ? 1 : 0;
  for (const std::string_view key : file->Keys()) {
    if (const auto text = file->GetString(key); text.ok()) read += text->size();
    if (const auto strings = file->GetStringArray(key); strings.ok()) read += strings->size();
    if (const auto numbers = file->GetIntArray(key); numbers.ok()) read += numbers->size();
    if (const auto numbers = file->GetFloatArray(key); numbers.ok()) read += numbers->size();
  }
  for (const GgufTensor& tensor : file->tensors()) {
    if (!CanDequantize(tensor.type)) continue;
    std::vector<float> row(static_cast<size_t>(tensor.dim(0)));
    DequantizeRow(tensor, tensor.dim(1) - 1, row);
    read += row.size();
  }
  return read > size * 1000 ? 1 : 0;
}
