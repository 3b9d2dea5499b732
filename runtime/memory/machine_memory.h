// How much memory this process may use, and how much of it is free.
#pragma once

#include <cstdint>

namespace ipex::runtime {

struct MachineMemory {
  int64_t free, total;
};

// Of the machine and of the control groups that the process is in, the least. Throws c10::Error where the system does not
// say.
MachineMemory machine_memory();

}  // namespace ipex::runtime
