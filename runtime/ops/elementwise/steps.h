// A step of an elementwise program as text: a post-op and the numbers of the values that it reads, "mul 0 2",
// "leaky_relu(0.01) 3". The inputs of the program are the first values, the results of its steps the next ones.
//
// Post-ops are those of packed/post_ops.inc, so that a program can say what a packed op's list can.
#pragma once

#include <ATen/core/List.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/elementwise_program.h"
#include "packed/post_op.h"

namespace ipex::runtime {

struct NamedStep {
  std::string_view post_op;  // with its arguments
  ProgramStep program;       // its values numbered as in the text
  StepForm form;
  int operands;     // the values that it reads
  bool has_kernel;  // false: for these numbers, or at all

  // The value that it reads as its first, second or third operand.
  size_t operand(int i) const {
    return static_cast<size_t>(i == 0 ? program.y : i == 1 ? program.other : program.third);
  }
};

using NamedSteps = c10::SmallVector<NamedStep, 8>;

// Whether the kernel of an operation gives what is true or false, rather than floats; `is_bool` says so of each operand. None
// where it takes no such operands, or eager's op gives another dtype.
std::optional<bool> gives_bool(Operation operation, const std::array<bool, 3>& is_bool);

// What a list of texts says. The steps name post-ops in these texts.
struct ReadSteps {
  std::vector<std::string> texts;
  int64_t input_count;
  NamedSteps steps;
};

// Reads them, or remembers them: a thread keeps some programs that it has read. Throws, naming the op, for text that is damaged.
std::shared_ptr<const ReadSteps> read_steps(const c10::List<std::string>& texts, int64_t input_count);

}  // namespace ipex::runtime
