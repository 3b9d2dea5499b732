// Memory that is done with before it can be freed.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// Whether nobody else can read what the tensor holds, and it was allocated as torch or we allocate.
bool is_ours_alone(const at::Tensor& tensor);

// Gives the whole pages between two addresses back to the system. What they held is lost.
void forget(void* begin, void* end);

// A hint, before the memory is used.
void ask_for_huge_pages(void* begin, size_t bytes);

}  // namespace ipex::runtime
