// A post-op: an elementwise operation that a packed op applies to its result before anyone else sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

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
using PostOpArguments = std::vector<at::Scalar>;

// A row of post_ops.inc.
struct PostOpKind {
  const char* name;
  size_t argument_count;
  bool takes_operand;
  Steps (*steps)(const std::vector<double>& a);
  // The same thing in aten, for what oneDNN can't do exactly. `other` is undefined for a unary op, `third` where it has no
  // third operand.
  at::Tensor (*reference)(at::Tensor y, const at::Tensor& other, const at::Tensor& third, const PostOpArguments& a);
};

struct PostOp {
  const PostOpKind* kind;
  PostOpArguments arguments;
  // Empty when it is left to aten.
  Steps steps;

  at::Tensor apply(const at::Tensor& y, const at::Tensor& other, const at::Tensor& third = {}) const {
    return kind->reference(y, other, third, arguments);
  }
};

using PostOps = std::vector<PostOp>;

// Reads "leaky_relu(0.01)". Throws, naming `where`, for a name that this version doesn't know.
PostOps parse_post_ops(const char* where, const std::vector<std::string>& texts);

std::vector<std::string> texts_of(const PostOps& post_ops);

size_t operand_count(const PostOps& post_ops);

}  // namespace ipex::runtime
