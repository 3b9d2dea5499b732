// What <ipex/memory.h> promises, for CPUs from our allocator, for other devices from torch's.
#include <c10/core/CachingDeviceAllocator.h>
#include <ipex/memory.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <iomanip>
#include <sstream>

#include "memory/allocator.h"
#include "memory/emptied_cache.h"
#include "memory/machine_memory.h"
#include "memory/mapped_memory.h"

namespace ipex {
namespace {

using runtime::CachingAllocator;

bool is_cpu(const MemoryDevice& device) { return !device || device->is_cpu(); }

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR > 8
using DeviceAllocator = c10::DeviceAllocator;
#else
// torch 2.8 has no common face of its devices' allocators. Nothing is one of these, so none is found.
struct DeviceAllocator : c10::Allocator {
  virtual bool initialized() = 0;
  virtual void emptyCache() = 0;
  virtual c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) = 0;
  virtual void resetAccumulatedStats(c10::DeviceIndex device) = 0;
  virtual void resetPeakStats(c10::DeviceIndex device) = 0;
};
#endif

// torch's allocator for a device other than a CPU.
DeviceAllocator& allocator_of(const MemoryDevice& device, const char* function) {
  auto* const allocator = dynamic_cast<DeviceAllocator*>(c10::GetAllocator(device->type()));
  TORCH_CHECK(allocator && allocator->initialized(), "ipex::", function,
              ": expected a device whose memory torch manages, got ", *device,
              ". Use torch 2.9 or later that was built for it, and make a tensor there first.");
  return *allocator;
}

c10::DeviceIndex index_of(const MemoryDevice& device) { return device->has_index() ? device->index() : 0; }

MemoryStats stats_of(const c10::CachingDeviceAllocator::DeviceStats& from) {
  using c10::CachingAllocator::StatArray;
  const std::array<std::pair<const char*, const StatArray*>, 8> keys{
      {{"allocated", &from.allocation},
       {"allocated_bytes", &from.allocated_bytes},
       {"segment", &from.segment},
       {"reserved_bytes", &from.reserved_bytes},
       {"active", &from.active},
       {"active_bytes", &from.active_bytes},
       {"inactive_split", &from.inactive_split},
       {"inactive_split_bytes", &from.inactive_split_bytes}}};
  const std::array<const char*, 3> pools{"all", "small_pool", "large_pool"};  // as in c10::CachingAllocator::StatType
  MemoryStats stats;
  for (const auto& [key, figures] : keys) {
    for (size_t i = 0; i < pools.size(); ++i) {
      const auto& figure = (*figures)[i];
      stats.figures[key][pools[i]] = {
          {"current", figure.current}, {"peak", figure.peak}, {"allocated", figure.allocated}, {"freed", figure.freed}};
    }
  }
  stats.num_alloc_retries = from.num_alloc_retries;
  stats.num_ooms = from.num_ooms;
  return stats;
}

MemoryStats stats_for(const MemoryDevice& device, const char* function) {
  if (is_cpu(device)) {
    MemoryStats stats = CachingAllocator::instance().stats();
    const auto kept = runtime::EmptiedCache::all_kept();
    stats.num_kept = kept.entries;
    stats.kept_bytes = kept.bytes;
    return stats;
  }
  return stats_of(allocator_of(device, function).getDeviceStats(index_of(device)));
}

// A template, so that a torch whose allocators don't tell compiles it.
template <typename Allocator>
std::pair<int64_t, int64_t> free_and_total(Allocator& allocator, c10::DeviceIndex index) {
  if constexpr (requires { allocator.getMemoryInfo(index); }) {
    const auto [free, total] = allocator.getMemoryInfo(index);
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  } else {
    TORCH_CHECK(false, "ipex::mem_get_info: expected an allocator that tells, got that of torch ", TORCH_VERSION,
                ". Ask the device's own library.");
  }
}

int64_t figure(const MemoryDevice& device, const char* function, const char* key, const char* moment) {
  return stats_for(device, function).figures[key]["all"][moment];
}

std::string in_words(int64_t figure, bool is_bytes) {
  std::ostringstream text;
  if (!is_bytes) {
    text << figure;
  } else if (figure < 10 << 10) {
    text << figure << " B";
  } else if (figure < 10 << 20) {
    text << (figure >> 10) << " KiB";
  } else {
    text << (figure >> 20) << " MiB";
  }
  return text.str();
}

}  // namespace

MemoryStats memory_stats_as_nested_dict(MemoryDevice device) {
  return stats_for(device, "memory_stats_as_nested_dict");
}

std::map<std::string, int64_t> memory_stats(MemoryDevice device) {
  const MemoryStats stats = stats_for(device, "memory_stats");
  std::map<std::string, int64_t> flat{{"num_alloc_retries", stats.num_alloc_retries},
                                      {"num_ooms", stats.num_ooms},
                                      {"num_kept", stats.num_kept},
                                      {"kept_bytes", stats.kept_bytes}};
  for (const auto& [key, pools] : stats.figures) {
    for (const auto& [pool, moments] : pools) {
      for (const auto& [moment, figure] : moments) flat[key + "." + pool + "." + moment] = figure;
    }
  }
  return flat;
}

std::string memory_summary(MemoryDevice device, bool abbreviated) {
  MemoryStats stats = stats_for(device, "memory_summary");
  std::ostringstream text;
  text << "Memory of ipex on " << (device ? device->str() : "cpu") << ": " << stats.num_ooms << " allocations failed, "
       << stats.num_alloc_retries << " were tried again\n"
       << std::left << std::setw(32) << "" << std::right;
  const std::array<const char*, 4> moments{"current", "peak", "allocated", "freed"};
  for (const char* moment : moments) text << std::setw(14) << moment;
  text << '\n';
  for (const char* key : {"allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes", "allocated",
                          "active", "segment", "inactive_split"}) {
    const bool is_bytes = std::string_view(key).find("bytes") != std::string_view::npos;
    for (const char* pool : {"all", "large_pool", "small_pool"}) {
      const bool is_all = std::string_view(pool) == "all";
      if (abbreviated && !is_all) continue;
      text << std::left << std::setw(32) << (is_all ? std::string(key) : std::string("  ") + pool) << std::right;
      for (const char* moment : moments) text << std::setw(14) << in_words(stats.figures[key][pool][moment], is_bytes);
      text << '\n';
    }
  }
  if (stats.num_kept > 0) {
    text << "For shapes that were seen, ops keep " << stats.num_kept << " primitives and maps, and of the latter "
         << in_words(stats.kept_bytes, /*is_bytes=*/true) << '\n';
  }
  if (is_cpu(device) && mapped_bytes() > 0) {
    text << "Beside these, " << in_words(mapped_bytes(), /*is_bytes=*/true)
         << " of files with packed weights are mapped, and shared with other processes\n";
  }
  return text.str();
}

std::vector<MemorySegment> memory_snapshot(MemoryDevice device) {
  TORCH_CHECK(is_cpu(device), "ipex::memory_snapshot: expected a CPU, got ", *device,
              ". Ask torch for a snapshot of that device.");
  return CachingAllocator::instance().snapshot();
}

int64_t mapped_bytes() { return runtime::mapped_file_bytes; }

int64_t memory_allocated(MemoryDevice device) {
  return figure(device, "memory_allocated", "allocated_bytes", "current");
}
int64_t max_memory_allocated(MemoryDevice device) {
  return figure(device, "max_memory_allocated", "allocated_bytes", "peak");
}
int64_t memory_reserved(MemoryDevice device) { return figure(device, "memory_reserved", "reserved_bytes", "current"); }
int64_t max_memory_reserved(MemoryDevice device) {
  return figure(device, "max_memory_reserved", "reserved_bytes", "peak");
}

void reset_peak_memory_stats(MemoryDevice device) {
  if (is_cpu(device)) return CachingAllocator::instance().reset_peaks();
  allocator_of(device, "reset_peak_memory_stats").resetPeakStats(index_of(device));
}

void reset_accumulated_memory_stats(MemoryDevice device) {
  if (is_cpu(device)) return CachingAllocator::instance().reset_accumulated();
  allocator_of(device, "reset_accumulated_memory_stats").resetAccumulatedStats(index_of(device));
}

void empty_cache(MemoryDevice device) {
  if (is_cpu(device)) {
    runtime::EmptiedCache::empty_all();
    return CachingAllocator::instance().empty_cache();
  }
  allocator_of(device, "empty_cache").emptyCache();
}

std::pair<int64_t, int64_t> mem_get_info(MemoryDevice device) {
  if (!is_cpu(device)) {
    return free_and_total(allocator_of(device, "mem_get_info"), index_of(device));
  }
  auto [free, total] = runtime::machine_memory();
  if (const std::optional<int64_t> limit = get_memory_limit()) {
    total = std::min(total, *limit);
    free = std::clamp<int64_t>(*limit - CachingAllocator::instance().reserved_bytes(), 0, free);
  }
  return {free, total};
}

void set_memory_limit(std::optional<int64_t> bytes) {
  TORCH_CHECK(!bytes || *bytes >= 0, "ipex::set_memory_limit: expected a number of bytes, or none, got ", *bytes,
              ". Give none to lift the limit.");
  CachingAllocator::instance().set_limit(bytes);
}

std::optional<int64_t> get_memory_limit() {
  const std::optional<size_t> limit = CachingAllocator::instance().limit();
  return limit ? std::optional(static_cast<int64_t>(*limit)) : std::nullopt;
}

}  // namespace ipex
