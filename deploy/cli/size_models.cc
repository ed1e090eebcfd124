#include "deploy/cli/size_models.h"

#include <cstdio>

#include "deploy/cli/command.h"

namespace kvring::cli {
namespace {

constexpr replica::KvShape kGrouped{.layers = 32, .kv_heads = 8, .head_dim = 128};
constexpr replica::KvShape kMultiHead{.layers = 32, .kv_heads = 32, .head_dim = 128};
constexpr replica::KvShape kWindowed{.layers = 32, .kv_heads = 8, .head_dim = 128, .window = 4096};

}  // namespace

const std::vector<PublishedShape>& PublishedShapes() {
  static const std::vector<PublishedShape> shapes = {{"Llama-2-7B", kMultiHead, 4096},
                                                     {"Llama-3-8B", kGrouped, 8192},
                                                     {"Mistral-7B-v0.3", kGrouped, 32768},
                                                     {"Mistral-7B-v0.1 (window 4096)", kWindowed, 32768},
                                                     {"Mistral-7B with multi-head", kMultiHead, 32768}};
  return shapes;
}

boost::json::object ModelsJson(int64_t room_bytes) {
  boost::json::array rows;
  for (const auto& [name, shape, context] : PublishedShapes()) {
    const int64_t bytes = KvBytes(shape, context, 1);
    boost::json::object row = {{"model", name},
                               {"tokens", context},
                               {"kv_bytes_per_token", KvBytesPerToken(shape)},
                               {"kv_bytes", bytes}};
    if (room_bytes > 0) row["conversations"] = room_bytes / bytes;
    rows.push_back(std::move(row));
  }
  return {{"models", std::move(rows)}};
}

void PrintModels(int64_t room_bytes) {
  std::printf("%-30s %8s %12s %12s%s\n", "model", "tokens", "per token", "full context",
              room_bytes > 0 ? "  conversations" : "");
  for (const auto& [name, shape, context] : PublishedShapes()) {
    const int64_t bytes = KvBytes(shape, context, 1);
    std::printf("%-30s %8ld %12s %12s", name, context, FormatBytes(KvBytesPerToken(shape)).c_str(),
                FormatBytes(bytes).c_str());
    if (room_bytes > 0) std::printf(" %14ld", room_bytes / bytes);
    std::printf("\n");
  }
}

}  // namespace kvring::cli
