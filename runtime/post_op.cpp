#include "post_op.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace ipex::runtime {
namespace {

using Tensor = at::Tensor;

const PostOp table[] = {
#define IPEX_UNARY_POST_OP(name, kind, alpha, beta, expression) \
  {#name, dnnl::algorithm::kind, alpha, beta, false, [](Tensor y, const Tensor&) -> Tensor { return expression; }},
#define IPEX_BINARY_POST_OP(name, kind, expression) \
  {#name, dnnl::algorithm::kind, 0.f, 0.f, true, [](Tensor y, const Tensor& other) -> Tensor { return expression; }},
#include "post_ops.inc"
#undef IPEX_UNARY_POST_OP
#undef IPEX_BINARY_POST_OP
};

}  // namespace

PostOps parse_post_ops(const char* where, const std::vector<std::string>& names) {
  PostOps post_ops;
  for (const std::string& name : names) {
    const PostOp* found =
        std::find_if(std::begin(table), std::end(table), [&](const PostOp& op) { return name == op.name; });
    TORCH_CHECK(found != std::end(table), where, ": expected a post-op that this version knows, got '", name,
                "'. The model was written by a newer ipex: upgrade, or optimise it again.");
    post_ops.push_back(found);
  }
  return post_ops;
}

std::vector<std::string> names_of(const PostOps& post_ops) {
  std::vector<std::string> names;
  for (const PostOp* op : post_ops) names.emplace_back(op->name);
  return names;
}

size_t operand_count(const PostOps& post_ops) {
  return std::count_if(post_ops.begin(), post_ops.end(), [](const PostOp* op) { return op->takes_operand; });
}

}  // namespace ipex::runtime
