#include "metrics.h"

#include <ipex/memory.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace server {
namespace {

std::string head(const std::string& name, const std::string& help, const char* type) {
  return "# HELP " + name + " " + help + "\n# TYPE " + name + " " + type + "\n";
}

std::string one(const std::string& name, const std::string& help, const char* type, int64_t value) {
  return head(name, help, type) + name + " " + std::to_string(value) + "\n";
}

int64_t resident_bytes() {
  int64_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

void Histogram::add(double value) {
  ++counts_[std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin()];
  sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& help) const {
  std::ostringstream lines;
  lines << head(name, help, "histogram");
  int64_t count = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    count += counts_[i];
    lines << name << "_bucket{le=\"";
    if (i < bounds_.size()) {
      lines << bounds_[i];
    } else {
      lines << "+Inf";
    }
    lines << "\"} " << count << '\n';
  }
  lines << name << "_sum " << sum_ << '\n' << name << "_count " << count << '\n';
  return lines.str();
}

void Metrics::count_request(int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[status];
}

void Metrics::count_rejected() {
  const std::lock_guard lock(mutex_);
  ++rejected_;
}

void Metrics::add_latency(double seconds) {
  const std::lock_guard lock(mutex_);
  latency_.add(seconds);
}

void Metrics::add_batch(int64_t rows) {
  const std::lock_guard lock(mutex_);
  batches_.add(static_cast<double>(rows));
}

std::string Metrics::text(size_t queued) const {
  const std::lock_guard lock(mutex_);
  std::string text = head("ipex_server_requests_total", "Requests by the status of their answer.", "counter");
  for (const auto& [status, count] : requests_) {
    text += "ipex_server_requests_total{code=\"" + std::to_string(status) + "\"} " + std::to_string(count) + "\n";
  }
  text += one("ipex_server_rejected_total", "Requests that the full queue did not take.", "counter", rejected_);
  text += one("ipex_server_queued_requests", "Requests that wait for a worker.", "gauge", static_cast<int64_t>(queued));
  text += latency_.text("ipex_server_latency_seconds", "From the last byte of a request to its answer.");
  text += batches_.text("ipex_server_batch_rows", "Rows of the batches that the model computed.");
  const char* memory = "What ipex holds: results, scratch memory and packed weights.";
  text += one("ipex_memory_allocated_bytes", memory, "gauge", ipex::memory_allocated());
  text += one("ipex_memory_allocated_peak_bytes", memory, "gauge", ipex::max_memory_allocated());
  text += one("ipex_memory_reserved_bytes", "What ipex took from the system.", "gauge", ipex::memory_reserved());
  text += one("process_resident_memory_bytes", "Pages of this process in memory.", "gauge", resident_bytes());
  return text;
}

}  // namespace server
