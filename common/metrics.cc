#include "common/metrics.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/check.h"

namespace kvring {
namespace {

void AppendNumber(std::string& out, double value) {
  if (std::isnan(value)) {
    out += "NaN";
  } else if (std::isinf(value)) {
    out += value > 0 ? "+Inf" : "-Inf";
  } else {
    char buffer[32];
    out.append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
  }
}

void AppendEscaped(std::string& out, std::string_view text, bool quotes) {
  for (char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
}

void AppendSample(std::string& out, std::string_view name, const Labels& labels, std::string_view extra_name,
                  std::string_view extra_value, double value) {
  out += name;
  std::string_view separator = "{";
  auto label = [&](std::string_view key, std::string_view text) {
    out += separator;
    out += key;
    out += "=\"";
    AppendEscaped(out, text, /*quotes=*/true);
    out += '"';
    separator = ",";
  };
  for (const auto& [key, text] : labels) label(key, text);
  if (!extra_name.empty()) label(extra_name, extra_value);
  if (separator == ",") out += '}';
  out += ' ';
  AppendNumber(out, value);
  out += '\n';
}

void AppendHistogram(std::string& out, const std::string& name, const Labels& labels,
                     const BucketHistogram& histogram) {
  double cumulative = 0;
  for (size_t i = 0; i <= histogram.bounds().size(); ++i) {
    cumulative += static_cast<double>(histogram.bucket(i));
    std::string bound;
    AppendNumber(bound, i < histogram.bounds().size() ? histogram.bounds()[i] : INFINITY);
    AppendSample(out, name + "_bucket", labels, "le", bound, cumulative);
  }
  AppendSample(out, name + "_sum", labels, "", "", histogram.sum());
  AppendSample(out, name + "_count", labels, "", "", cumulative);
}

}  // namespace

BucketHistogram::BucketHistogram(std::vector<double> bounds)
    : bounds_(std::move(bounds)), counts_(new std::atomic<uint64_t>[bounds_.size() + 1]()) {
  KVRING_CHECK(std::is_sorted(bounds_.begin(), bounds_.end()));
}

void BucketHistogram::Observe(double value) {
  const size_t i = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[i].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::vector<double> SecondsBounds() {
  std::vector<double> bounds;
  for (double bound = 0.001; bound < 66; bound *= 2) bounds.push_back(bound);
  return bounds;
}

MetricRegistry::Series& MetricRegistry::Find(std::string_view name, std::string_view help, Type type,
                                             const Labels& labels) {
  auto it = families_.find(name);
  if (it == families_.end()) {
    it = families_.emplace(std::string(name), Family{type, std::string(help), {}}).first;
  }
  KVRING_CHECK(it->second.type == type);
  return it->second.series[labels];
}

Counter& MetricRegistry::GetCounter(std::string_view name, std::string_view help, const Labels& labels) {
  absl::MutexLock lock(&mutex_);
  Series& series = Find(name, help, Type::kCounter, labels);
  if (!series.counter) series.counter = std::make_unique<Counter>();
  return *series.counter;
}

Gauge& MetricRegistry::GetGauge(std::string_view name, std::string_view help, const Labels& labels) {
  absl::MutexLock lock(&mutex_);
  Series& series = Find(name, help, Type::kGauge, labels);
  if (!series.gauge) series.gauge = std::make_unique<Gauge>();
  return *series.gauge;
}

BucketHistogram& MetricRegistry::GetHistogram(std::string_view name, std::string_view help,
                                              std::vector<double> bounds, const Labels& labels) {
  absl::MutexLock lock(&mutex_);
  Series& series = Find(name, help, Type::kHistogram, labels);
  if (!series.histogram) series.histogram = std::make_unique<BucketHistogram>(std::move(bounds));
  return *series.histogram;
}

void MetricRegistry::Remove(std::string_view label, std::string_view value) {
  absl::MutexLock lock(&mutex_);
  for (auto& [name, family] : families_) {
    std::erase_if(family.series, [&](const auto& entry) {
      return std::any_of(entry.first.begin(), entry.first.end(),
                         [&](const auto& pair) { return pair.first == label && pair.second == value; });
    });
  }
}

std::string MetricRegistry::Expose() const {
  absl::MutexLock lock(&mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    if (family.series.empty()) continue;
    out += "# HELP " + name + ' ';
    AppendEscaped(out, family.help, /*quotes=*/false);
    static constexpr std::string_view kTypes[] = {"counter", "gauge", "histogram"};
    out += "\n# TYPE " + name + ' ';
    out += kTypes[static_cast<int>(family.type)];
    out += '\n';
    for (const auto& [labels, series] : family.series) {
      if (series.counter)
        AppendSample(out, name, labels, "", "", static_cast<double>(series.counter->value()));
      if (series.gauge) AppendSample(out, name, labels, "", "", series.gauge->value());
      if (series.histogram) AppendHistogram(out, name, labels, *series.histogram);
    }
  }
  return out;
}

}  // namespace kvring
