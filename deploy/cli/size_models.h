// The published shapes behind `kvring size --models`: what a full context costs and how many conversations
// fit beside the weights, one row per model. Source of the shapes: the models' config.json. Pure, prints
// apart.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <vector>

#include "replica/kv/kv_size.h"

namespace kvring::cli {

struct PublishedShape {
  const char* name;
  replica::KvShape shape;
  int64_t context;
};

/// Llama-2-7B, Llama-3-8B, Mistral-7B without and with its window, and the same with multi-head attention.
const std::vector<PublishedShape>& PublishedShapes();

/// {"models":[{"model","tokens","kv_bytes_per_token","kv_bytes","conversations"}]}; conversations where
/// room_bytes > 0.
boost::json::object ModelsJson(int64_t room_bytes);
void PrintModels(int64_t room_bytes);

}  // namespace kvring::cli
