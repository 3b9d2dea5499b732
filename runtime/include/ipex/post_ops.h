// Post-ops by the texts that packed ops are made with: "relu", "leaky_relu(0.01)", "add".
#pragma once

#include <ipex/export.h>

#include <string>
#include <vector>

namespace ipex {

// Whether it reads a tensor beside the result that it is applied to. Throws for one that this version doesn't know.
IPEX_API bool takes_operand(const std::string& post_op);

// Whether ipex::elementwise has a kernel for it, with these numbers.
IPEX_API bool has_elementwise_kernel(const std::string& post_op);

// Whether that kernel is faster than aten's op by itself, and not only in a chain.
IPEX_API bool beats_aten(const std::string& post_op);

// A node that is an activation, in the language of passes' patterns, and its post-op.
struct ActivationPattern {
  std::string post_op;  // "leaky_relu(%slope)"
  std::string pattern;  // "aten::leaky_relu_?(%y, %slope)"
  bool is_packed;       // packed ops take it; else only ipex::elementwise does
};

IPEX_API const std::vector<ActivationPattern>& activation_patterns();

}  // namespace ipex
