// What the server counts, and the text that Prometheus reads.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace server {

class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
  void add(double value);
  // Its lines, under `name`.
  std::string text(const std::string& name, const std::string& help) const;

 private:
  std::vector<double> bounds_;
  std::vector<int64_t> counts_;  // of values up to each bound and above the one before; then those above all
  double sum_ = 0;
};

// Safe to call from many threads.
class Metrics {
 public:
  void count_request(int status);
  // A request that the full queue did not take.
  void count_rejected();
  // From the last byte of a request for inference to its answer.
  void add_latency(double seconds);
  void add_batch(int64_t rows);

  std::string text(size_t queued) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, int64_t> requests_;
  int64_t rejected_ = 0;
  Histogram latency_{{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}};
  Histogram batches_{{1, 2, 4, 8, 16, 32, 64, 128}};
};

}  // namespace server
