#include "memory/machine_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace ipex::runtime {
namespace {

// A line "MemTotal:  123 kB".
std::optional<int64_t> bytes_of(const std::string& field) {
  std::ifstream file("/proc/meminfo");
  std::string name;
  for (int64_t kibibytes; file >> name >> kibibytes; file.ignore(256, '\n')) {
    if (name == field) return kibibytes << 10;
  }
  return std::nullopt;
}

// None for "max".
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The folder of the process's control group, "/" in most containers. Lines are "0::/path", or "4:memory:/path" in the first
// version of control groups.
std::string control_group(const std::string& controller) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string text; std::getline(file, text);) {
    const size_t first = text.find(':'), second = text.find(':', first + 1);
    if (second != std::string::npos && text.substr(first + 1, second - first - 1) == controller) {
      return text.substr(second + 1);
    }
  }
  return {};
}

void restrict(MachineMemory& memory, const std::optional<int64_t>& limit, const std::optional<int64_t>& used) {
  if (!limit || *limit >= memory.total) return;
  memory.total = *limit;
  memory.free = std::clamp<int64_t>(*limit - used.value_or(0), 0, memory.free);
}

// A group's limit holds for those in it: so does that of each group above.
void restrict_by_groups(MachineMemory& memory, const std::string& root, std::string group, const char* limit,
                        const char* used) {
  while (true) {
    const std::string folder = root + (group == "/" ? "" : group) + "/";
    restrict(memory, number_in(folder + limit), number_in(folder + used));
    const size_t slash = group.find_last_of('/');
    if (slash == std::string::npos || group == "/") return;
    group = slash == 0 ? "/" : group.substr(0, slash);
  }
}

}  // namespace

MachineMemory machine_memory() {
  const auto total = bytes_of("MemTotal:"), free = bytes_of("MemAvailable:");
  TORCH_CHECK(total && free,
              "ipex.mem_get_info: expected MemTotal and MemAvailable in /proc/meminfo, got none. Mount /proc.");
  MachineMemory memory{*free, *total};
  restrict_by_groups(memory, "/sys/fs/cgroup", control_group(""), "memory.max", "memory.current");
  restrict_by_groups(memory, "/sys/fs/cgroup/memory", control_group("memory"), "memory.limit_in_bytes",
                     "memory.usage_in_bytes");
  return memory;
}

}  // namespace ipex::runtime
