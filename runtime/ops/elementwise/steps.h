// A step of an elementwise program as text: a post-op and the numbers of the values that it reads, "mul 0 2",
// "leaky_relu(0.01) 3". The inputs of the program are the first values, the results of its steps the next ones.
//
// Post-ops are those of packed/post_ops.inc, so that a program can say what a packed op's list can.
#pragma once

#include <ATen/core/List.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <string_view>

#include "kernels/elementwise_program.h"

namespace ipex::runtime {

// How eager's op looks at the layouts of what it reads: in place, or as an op of one tensor, or of two.
enum class StepForm { unary, binary, in_place };

struct NamedStep {
  std::string_view post_op;  // with its arguments
  ProgramStep program;       // its values numbered as in the text
  StepForm form;
  bool takes_other;  // a second value
  bool has_kernel;   // false: for these numbers, or at all
};

using NamedSteps = c10::SmallVector<NamedStep, 8>;

// Reads them. Throws, naming the op, for text that is damaged.
NamedSteps read_steps(const c10::List<std::string>& texts, int64_t input_count);

}  // namespace ipex::runtime
