// Counters, gauges and histograms with labels, and their Prometheus text form (exposition format 0.0.4).
// Updating a metric is one relaxed atomic operation and takes no lock; creating, removing and exposing take
// the registry's. Metric code can never fail a caller: a name used with two types is a programmer's error
// (CHECK), everything else is a value.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace kvring {

/// Ordered label pairs; values are escaped at exposition.
using Labels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

class Gauge {
 public:
  void Set(double value) { value_.store(value, std::memory_order_relaxed); }
  void Add(double delta) { value_.fetch_add(delta, std::memory_order_relaxed); }
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_{0};
};

/// Cumulative buckets with fixed upper bounds (ascending; +Inf is implied).
class BucketHistogram {
 public:
  explicit BucketHistogram(std::vector<double> bounds);
  void Observe(double value);
  const std::vector<double>& bounds() const { return bounds_; }
  uint64_t bucket(size_t i) const { return counts_[i].load(std::memory_order_relaxed); }
  double sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::vector<double> bounds_;
  std::unique_ptr<std::atomic<uint64_t>[]> counts_;  // bounds_.size() + 1
  std::atomic<double> sum_{0};
};

/// Bounds that double from 1 ms to 65 s: for TTFT, queue and request times in seconds.
std::vector<double> SecondsBounds();

class MetricRegistry {
 public:
  /// Returns the metric with these labels, made at first use. References live until Remove of their labels.
  Counter& GetCounter(std::string_view name, std::string_view help, const Labels& labels = {});
  Gauge& GetGauge(std::string_view name, std::string_view help, const Labels& labels = {});
  BucketHistogram& GetHistogram(std::string_view name, std::string_view help, std::vector<double> bounds,
                                const Labels& labels = {});

  /// Drops every series that carries this label pair (a replica that left). The caller must hold no reference
  /// to them.
  void Remove(std::string_view label, std::string_view value);

  /// Everything in exposition format, names and labels in lexical order.
  std::string Expose() const;

 private:
  enum class Type { kCounter, kGauge, kHistogram };
  struct Series {
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Gauge> gauge;
    std::unique_ptr<BucketHistogram> histogram;
  };
  struct Family {
    Type type;
    std::string help;
    std::map<Labels, Series> series;
  };

  Series& Find(std::string_view name, std::string_view help, Type type, const Labels& labels)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::map<std::string, Family, std::less<>> families_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace kvring
