#include "router/gateway/engine_metrics.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/numbers.h"
#include "common/absl_view.h"

namespace kvring::router {
namespace {

constexpr double kLargest = 1e15;  // counts above it are no counts

struct Sample {
  std::string_view name;
  std::string_view labels;  // between the braces
  double value = 0;
};

// Where the label set that begins at `open` ends; a brace or quote inside a value does not count.
size_t EndOfLabels(std::string_view line, size_t open) {
  bool in_value = false;
  for (size_t i = open + 1; i < line.size(); ++i) {
    if (in_value && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      in_value = !in_value;
    } else if (!in_value && line[i] == '}') {
      return i;
    }
  }
  return std::string_view::npos;
}

std::optional<Sample> ParseSample(std::string_view line) {
  if (line.empty() || line.front() == '#') return std::nullopt;
  const size_t name_end = line.find_first_of("{ \t");
  if (name_end == std::string_view::npos) return std::nullopt;
  Sample sample{.name = line.substr(0, name_end)};
  size_t rest = name_end;
  if (line[name_end] == '{') {
    const size_t close = EndOfLabels(line, name_end);
    if (close == std::string_view::npos) return std::nullopt;
    sample.labels = line.substr(name_end + 1, close - name_end - 1);
    rest = close + 1;
  }
  const size_t first = line.find_first_not_of(" \t", rest);
  if (first == std::string_view::npos) return std::nullopt;
  const std::string_view number = line.substr(first, line.find_first_of(" \t\r", first) - first);
  if (!absl::SimpleAtod(Absl(number), &sample.value) || !std::isfinite(sample.value)) return std::nullopt;
  return sample;
}

// The whole number that a label holds in quotes; 0 where there is none.
int64_t LabelNumber(std::string_view labels, std::string_view name) {
  size_t at = 0;
  while ((at = labels.find(name, at)) != std::string_view::npos) {
    const size_t value = at + name.size() + 2;
    const bool whole_name = at == 0 || labels[at - 1] == ',' || labels[at - 1] == ' ';
    at += name.size();
    if (!whole_name || value > labels.size() || labels.substr(at, 2) != "=\"") continue;
    const std::string_view text = labels.substr(value, labels.find('"', value) - value);
    int64_t number = 0;
    if (absl::SimpleAtoi(Absl(text), &number) && number > 0 && static_cast<double>(number) < kLargest)
      return number;
    return 0;
  }
  return 0;
}

template <size_t N>
bool IsOneOf(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void AddCount(std::optional<int64_t>& sum, double value) {
  if (value < 0 || value > kLargest) return;
  sum = sum.value_or(0) + static_cast<int64_t>(value);
}

void AddCacheConfig(EngineMetrics& metrics, int64_t block_size, int64_t blocks) {
  if (block_size <= 0 || block_size > 1 << 20) return;
  metrics.block_size = static_cast<int32_t>(block_size);
  if (blocks < static_cast<int64_t>(kLargest) / block_size) metrics.kv_tokens += blocks * block_size;
}

}  // namespace

EngineMetrics ParseEngineMetrics(std::string_view page) {
  constexpr std::array<std::string_view, 4> kRunning = {
      "vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing",
      "tgi_batch_current_size"};
  constexpr std::array<std::string_view, 4> kWaiting = {"vllm:num_requests_waiting", "sglang:num_queue_reqs",
                                                        "llamacpp:requests_deferred", "tgi_queue_size"};
  EngineMetrics metrics;
  int64_t total_tokens = 0;
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    const std::optional<Sample> sample = ParseSample(page.substr(0, end));
    page.remove_prefix(std::min(end + 1, page.size()));
    if (!sample) continue;
    if (IsOneOf(sample->name, kRunning)) {
      AddCount(metrics.running, sample->value);
    } else if (IsOneOf(sample->name, kWaiting)) {
      AddCount(metrics.waiting, sample->value);
    } else if (sample->name == "vllm:cache_config_info") {
      AddCacheConfig(metrics, LabelNumber(sample->labels, "block_size"),
                     LabelNumber(sample->labels, "num_gpu_blocks"));
    } else if (sample->name == "sglang:cache_config_info") {
      AddCacheConfig(metrics, LabelNumber(sample->labels, "page_size"),
                     LabelNumber(sample->labels, "num_pages"));
    } else if (sample->name == "sglang:max_total_num_tokens" && sample->value > 0 &&
               sample->value < kLargest) {
      total_tokens += static_cast<int64_t>(sample->value);
    } else if (sample->name == "process_start_time_seconds") {
      metrics.started_at = sample->value;
    }
  }
  if (metrics.kv_tokens == 0) metrics.kv_tokens = total_tokens;
  return metrics;
}

}  // namespace kvring::router
