// A post-op: an elementwise operation that a packed op applies to its result before anyone else sees it, or a step of
// ipex::elementwise. Everything about one is a row of post_ops.inc.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/operation.h"
#include "onednn/dnnl.h"

namespace ipex::runtime {

// What oneDNN is told to do: one entry of its own list of post-ops.
struct Step {
  dnnl::algorithm algorithm;
  double alpha = 0;
  double beta = 0;

  bool takes_operand() const;
};

using Steps = std::vector<Step>;
// Integers stay integers: times 2 and times 2.0 are not the same to a tensor of integers.
using PostOpArguments = c10::SmallVector<at::Scalar, 3>;
using Numbers = c10::SmallVector<double, 3>;

// What kernels of our own compute: an operation with its numbers.
struct Computation {
  Operation operation;
  float a, b, c;
  bool beats_aten;  // by itself, and not only where it saves a pass over memory
};

// How eager's op looks at the layouts of what it reads: as an op of so many tensors, of which the last may be a number; in
// place; with a copy of its first operand that is contiguous; or with y as its second operand.
enum class StepForm { unary, binary, ternary, in_place, contiguous, reversed };

// A row of post_ops.inc.
struct PostOpKind {
  std::string_view name;
  StepForm form;
  size_t argument_count;
  size_t operand_count;
  // The same thing in aten, for what the others can't do exactly. `other` is undefined for a unary op, `third` where it has no
  // third operand.
  at::Tensor (*reference)(at::Tensor y, const at::Tensor& other, const at::Tensor& third, const PostOpArguments& a);
  // In our kernels. None where they have it not, or not for these numbers.
  std::optional<Computation> (*computation)(const Numbers& a);
  Steps (*steps)(const Numbers& a);

  bool takes_operand() const { return operand_count > 0; }
};

// "leaky_relu(0.01)". Of another version, a name may have no row.
struct PostOpText {
  std::string_view name, text;
  const PostOpKind* kind;
  PostOpArguments arguments;

  Numbers numbers() const;
};

// What `text` begins with. None where that is damaged, or has another number of numbers than its row says.
std::optional<PostOpText> read_post_op(std::string_view text);

// What kernels of our own compute, where floats hold the numbers that were meant.
std::optional<Computation> computation_of(const PostOpText& post_op);

struct PostOp {
  const PostOpKind* kind;
  PostOpArguments arguments;
  // Empty when oneDNN has none.
  Steps steps;
  std::optional<Computation> computation;

  at::Tensor apply(const at::Tensor& y, const at::Tensor& other, const at::Tensor& third = {}) const {
    return kind->reference(y, other, third, arguments);
  }
};

using PostOps = std::vector<PostOp>;

// Throws, naming `where`, for a name that this version doesn't know, and for text that is damaged.
PostOps parse_post_ops(const char* where, const std::vector<std::string>& texts);

std::vector<std::string> texts_of(const PostOps& post_ops);

size_t operand_count(const PostOps& post_ops);

}  // namespace ipex::runtime
