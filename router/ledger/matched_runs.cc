#include "router/ledger/matched_runs.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "router/ledger/content_chunks.h"

namespace kvring::router {
namespace {

constexpr uint64_t kFactor = 0x9e3779b97f4a7c15ULL;

struct Window {
  uint64_t hash = 0;
  size_t at = 0;
};

// Rolling hashes of the windows of kMinRunBytes that begin within kResyncWindowBytes of `begin`.
std::vector<Window> Windows(std::string_view text, size_t begin) {
  std::vector<Window> windows;
  if (text.size() - begin < kMinRunBytes) return windows;
  uint64_t leaving = 1;
  uint64_t hash = 0;
  for (size_t i = 0; i < kMinRunBytes; ++i) {
    hash = hash * kFactor + static_cast<unsigned char>(text[begin + i]);
    leaving *= kFactor;
  }
  const size_t last = std::min(text.size() - kMinRunBytes, begin + kResyncWindowBytes);
  for (size_t at = begin;; ++at) {
    windows.push_back({hash, at});
    if (at == last) return windows;
    hash = hash * kFactor + static_cast<unsigned char>(text[at + kMinRunBytes]) -
           leaving * static_cast<unsigned char>(text[at]);
  }
}

class Matcher {
 public:
  Matcher(std::string_view a, size_t a_begin, std::string_view b) : a_(a), a_begin_(a_begin), b_(b) {}

  std::vector<MatchedRun> Match(size_t b_begin) {
    std::vector<MatchedRun> runs;
    size_t a = a_begin_;
    size_t b = b_begin;
    while (a <= a_.size() && b < b_.size() && runs.size() < kMaxRuns) {
      auto run = Near(a, b);
      if (!run) run = Far(b);
      if (!run) break;
      runs.push_back(*run);
      a = run->a + run->length;
      b = run->b + run->length;
    }
    return runs;
  }

 private:
  MatchedRun Grown(size_t a, size_t b) const { return {a, b, CommonPrefix(a_.substr(a), b_.substr(b))}; }

  std::optional<MatchedRun> Near(size_t a, size_t b) const {
    std::vector<Window> in_a = Windows(a_, a);
    std::ranges::sort(in_a, [](const Window& x, const Window& y) {
      return x.hash != y.hash ? x.hash < y.hash : x.at < y.at;
    });
    std::optional<MatchedRun> best;
    size_t least = std::numeric_limits<size_t>::max();
    for (const Window& window : Windows(b_, b)) {
      const auto found = std::ranges::lower_bound(in_a, window.hash, {}, &Window::hash);
      if (found == in_a.end() || found->hash != window.hash) continue;
      const size_t distance = found->at - a + window.at - b;
      if (distance >= least) continue;
      const MatchedRun run = Grown(found->at, window.at);
      if (run.length < kMinRunBytes) continue;
      best = run;
      least = distance;
    }
    return best;
  }

  std::optional<MatchedRun> Far(size_t b) {
    if (chunks_of_a_.empty()) {
      for (const ContentChunk& chunk : ContentChunks(a_, a_begin_, std::string_view::npos))
        chunks_of_a_.try_emplace(chunk.hash, chunk.begin);
    }
    if (chunks_of_b_.empty()) chunks_of_b_ = ContentChunks(b_, b, std::string_view::npos);
    for (; next_chunk_ < chunks_of_b_.size(); ++next_chunk_) {
      const ContentChunk& chunk = chunks_of_b_[next_chunk_];
      const auto found = chunks_of_a_.find(chunk.hash);
      if (chunk.begin < b || found == chunks_of_a_.end()) continue;
      const MatchedRun run = Backwards(Grown(found->second, chunk.begin), b);
      if (run.length >= kMinRunBytes) return run;
    }
    return std::nullopt;
  }

  MatchedRun Backwards(MatchedRun run, size_t b_floor) const {
    while (run.a > a_begin_ && run.b > b_floor && a_[run.a - 1] == b_[run.b - 1]) {
      --run.a;
      --run.b;
      ++run.length;
    }
    return run;
  }

  std::string_view a_;
  size_t a_begin_;
  std::string_view b_;
  absl::flat_hash_map<uint64_t, size_t> chunks_of_a_;  // look-up only
  std::vector<ContentChunk> chunks_of_b_;
  size_t next_chunk_ = 0;
};

}  // namespace

size_t CommonPrefix(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::vector<MatchedRun> MatchedRuns(std::string_view a, size_t a_begin, std::string_view b, size_t b_begin) {
  return Matcher(a, a_begin, b).Match(b_begin);
}

size_t TotalLength(const std::vector<MatchedRun>& runs) {
  return std::accumulate(runs.begin(), runs.end(), size_t{0},
                         [](size_t sum, const MatchedRun& run) { return sum + run.length; });
}

}  // namespace kvring::router
