// A post-op: an elementwise operation that a packed op applies to its result before anyone else sees it.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "onednn/dnnl.h"

namespace ipex::runtime {

struct PostOp {
  const char* name;
  dnnl::algorithm algorithm;
  float alpha;
  float beta;
  bool takes_operand;
  // The same thing in aten, for what oneDNN can't do exactly. `other` is undefined for a unary op.
  at::Tensor (*reference)(at::Tensor y, const at::Tensor& other);
};

using PostOps = std::vector<const PostOp*>;

// Looks the names up in the table. Throws, naming `where`, for one that this version doesn't know.
PostOps parse_post_ops(const char* where, const std::vector<std::string>& names);

std::vector<std::string> names_of(const PostOps& post_ops);

size_t operand_count(const PostOps& post_ops);

}  // namespace ipex::runtime
