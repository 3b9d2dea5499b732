// Which CPUs there are, and which of them a stream gets. ipex/stream_pool.h
#include <c10/util/Exception.h>
#include <ipex/stream_pool.h>
#include <omp.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <new>
#include <set>
#include <string>
#include <tuple>

namespace ipex {
namespace {

// The first number in a file such as "0-1" or "0,64"; `otherwise` where there is none.
int64_t number_in(const std::string& path, int64_t otherwise) {
  int64_t number;
  return std::ifstream(path) >> number ? number : otherwise;
}

int64_t node_of(const std::string& folder) {
  constexpr int64_t most_nodes = 64;
  for (int64_t node = 0; node < most_nodes; ++node) {
    if (std::ifstream(folder + "/node" + std::to_string(node) + "/cpulist")) return node;
  }
  return 0;
}

// CPUs of the calling thread. OpenMP may have bound it to one of those that are the process's.
std::set<int64_t> allowed_numbers() {
  std::set<int64_t> numbers;
  constexpr size_t most_cpus = 8192;
  cpu_set_t* set = CPU_ALLOC(most_cpus);
  if (!set) throw std::bad_alloc();
  const size_t size = CPU_ALLOC_SIZE(most_cpus);
  CPU_ZERO_S(size, set);
  if (sched_getaffinity(0, size, set) == 0) {
    for (size_t i = 0; i < most_cpus; ++i) {
      if (CPU_ISSET_S(i, size, set)) numbers.insert(static_cast<int64_t>(i));
    }
  }
  CPU_FREE(set);
  if (omp_get_proc_bind() != omp_proc_bind_false) {
    for (int place = 0; place < omp_get_num_places(); ++place) {
      std::vector<int> ids(omp_get_place_num_procs(place));
      omp_get_place_proc_ids(place, ids.data());
      numbers.insert(ids.begin(), ids.end());
    }
  }
  return numbers;
}

// Takes `count` CPUs away from the front of the node with most left, or else from wherever there are some.
std::vector<int64_t> take(std::map<int64_t, std::vector<int64_t>>& by_node, int64_t count) {
  const auto node = std::max_element(by_node.begin(), by_node.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  std::vector<int64_t> taken;
  const auto take_from = [&](std::vector<int64_t>& from) {
    const auto now = std::min<int64_t>(count - static_cast<int64_t>(taken.size()), static_cast<int64_t>(from.size()));
    taken.insert(taken.end(), from.begin(), from.begin() + now);
    from.erase(from.begin(), from.begin() + now);
  };
  take_from(node->second);
  for (auto& [_, rest] : by_node) take_from(rest);
  return taken;
}

// The CPUs in the order in which threads get them: with `threads` no more than cores, one of each core.
std::vector<Cpu> in_order(std::vector<Cpu> cpus, int64_t threads, int64_t cores) {
  std::sort(cpus.begin(), cpus.end(), [](const Cpu& a, const Cpu& b) {
    return std::tie(a.node, a.core, a.number) < std::tie(b.node, b.core, b.number);
  });
  if (threads <= cores) {
    const auto same_core = [](const Cpu& a, const Cpu& b) { return a.core == b.core; };
    cpus.erase(std::unique(cpus.begin(), cpus.end(), same_core), cpus.end());
  }
  return cpus;
}

}  // namespace

std::vector<Cpu> usable_cpus() {
  std::vector<Cpu> cpus;
  for (const int64_t number : allowed_numbers()) {
    const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(number);
    const int64_t core = number_in(folder + "/topology/thread_siblings_list", number);
    cpus.push_back({number, core, node_of(folder)});
  }
  return cpus;
}

int64_t cpu_quota() {
  const int64_t all = std::max<int64_t>(1, static_cast<int64_t>(allowed_numbers().size()));
  std::ifstream file("/sys/fs/cgroup/cpu.max");  // "max 100000", or the microseconds of each period
  double quota, period;
  if (!(file >> quota >> period) || period <= 0) return all;
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(quota / period)), 1, all);
}

StreamPlan plan_streams(const StreamPoolOptions& options, const std::vector<Cpu>& cpus, int64_t quota) {
  TORCH_CHECK_VALUE(options.streams >= 0 && options.threads_per_stream >= 0 && options.max_queue >= 0,
                    "ipex.StreamPool: expected positive numbers of streams, threads_per_stream and max_queue, got ",
                    options.streams, ", ", options.threads_per_stream, " and ", options.max_queue,
                    ". Leave out what ipex shall choose.");
  constexpr int64_t most_threads = 1 << 16;
  TORCH_CHECK_VALUE(options.streams <= most_threads && options.threads_per_stream <= most_threads &&
                        options.streams * options.threads_per_stream <= most_threads,
                    "ipex.StreamPool: expected at most ", most_threads, " threads in all, got ", options.streams,
                    " streams of ", options.threads_per_stream, ".");
  std::set<int64_t> core_numbers;
  for (const Cpu& cpu : cpus) core_numbers.insert(cpu.core);
  const auto cores = std::max<int64_t>(1, static_cast<int64_t>(core_numbers.size()));
  const int64_t usable = std::max<int64_t>(1, std::min(cores, quota));
  int64_t streams = options.streams, threads = options.threads_per_stream;
  if (threads == 0) threads = streams == 0 ? 1 : std::max<int64_t>(1, usable / streams);
  if (streams == 0) streams = std::max<int64_t>(1, usable / threads);

  StreamPlan plan{streams, threads, {}};
  if (!options.pin || streams * threads > static_cast<int64_t>(cpus.size())) return plan;
  std::map<int64_t, std::vector<int64_t>> by_node;
  for (const Cpu& cpu : in_order(cpus, streams * threads, cores)) by_node[cpu.node].push_back(cpu.number);
  for (int64_t i = 0; i < streams; ++i) plan.cpus.push_back(take(by_node, threads));
  return plan;
}

}  // namespace ipex
