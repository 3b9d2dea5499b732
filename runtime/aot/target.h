// What this process packs weights for.
#pragma once

#include "aot/file_layout.h"

namespace ipex::runtime {

Target this_process();

// Why weights that were packed for `target` are of no use here. Empty where they are: then each is used where its layout
// is the one that the CPU wants.
std::string reason_against(const Target& target);

// "the file is for avx2 and this process uses avx512". Empty where both are the same.
std::string difference_of_levels(const Target& target);

}  // namespace ipex::runtime
