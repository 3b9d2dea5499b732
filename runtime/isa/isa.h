// What the runtime's own code asks. Asking fixes the choice for the process.
#pragma once

#include <ipex/isa.h>

namespace ipex::isa {

// The level that kernels of our own may use. Throws where there is none: see ipex/isa.h.
Level level_in_use();

// Whether the instructions of this level may be used.
bool is_in_use(Level level);

// Asks Linux for the use of AMX's tiles, for the process. Whether it is given, which asking again doesn't change.
bool request_tiles();

// Tells oneDNN what it may use. To be called before anything else of oneDNN.
void prepare_onednn();

// Throws, naming `where` the level comes from, unless level <= highest.
void check_reachable(const char* where, Level level, Level highest);

// oneDNN's names for what it calls dnnl_cpu_isa_t.
int onednn_value(const std::string& name);
std::string onednn_name(int value);

}  // namespace ipex::isa
