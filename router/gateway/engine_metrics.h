// EngineMetrics: what a foreign engine tells of itself on its Prometheus page: load, KV capacity, block size,
// start of its process. Known names (sums over the series of one name, an engine of several ranks has many):
//   vLLM       vllm:num_requests_running, vllm:num_requests_waiting,
//              vllm:cache_config_info{block_size,num_gpu_blocks}
//   SGLang     sglang:num_running_reqs, sglang:num_queue_reqs, sglang:max_total_num_tokens,
//              sglang:cache_config_info{page_size,num_pages}
//   llama.cpp  llamacpp:requests_processing, llamacpp:requests_deferred
//   TGI        tgi_batch_current_size, tgi_queue_size
// and process_start_time_seconds of any. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvring::router {

struct EngineMetrics {
  std::optional<int64_t> running;  // requests; absent: the page does not tell, which is not zero
  std::optional<int64_t> waiting;
  int64_t kv_tokens = 0;             // capacity; 0: not told
  int32_t block_size = 0;            // tokens; 0: not told
  std::optional<double> started_at;  // of the process, in seconds since the epoch
};

/// Reads a Prometheus text page; lines of other names, and such as are no samples, are skipped.
EngineMetrics ParseEngineMetrics(std::string_view page);

}  // namespace kvring::router
