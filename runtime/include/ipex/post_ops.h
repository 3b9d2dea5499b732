// Post-ops by the texts that packed ops are made with: "relu", "leaky_relu(0.01)", "add".
#pragma once

#include <ipex/export.h>

#include <string>

namespace ipex {

// Whether it reads a tensor beside the result that it is applied to. Throws for one that this version doesn't know.
IPEX_API bool takes_operand(const std::string& post_op);

// Whether ipex::elementwise has a kernel for it, with these numbers.
IPEX_API bool has_elementwise_kernel(const std::string& post_op);

}  // namespace ipex
