// fuse_norm_sum: a norm's result is added to the stream in the same pass over memory.
//
//   before   %n = ipex::layer_norm(%x, ..)          %y = aten::add(%residual, %n, %alpha=1)
//   after    %y = ipex::layer_norm(%x, .., %residual)
//
// and ipex::rms_norm. The result of either may be cast (aten::type_as) before. So do networks that normalise what a block
// gives, as Swin v2, Gemma and OLMo 2.
// Declines when alpha is not 1, when the other operand is a number, when somebody else reads the norm, when something is
// overwritten in between, and when the norm comes first in the sum and somebody sees strides: the sum has its first operand's.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "chains/elementwise_ports.h"
#include "ir/calls.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "ir/stride_readers.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// A norm whose result one op reads, cast or not.
struct Norm {
  Node* node;
  Value* like;  // whose dtype the result is cast to; null where it is not cast
};

// Of one tensor, with its ports still free.
bool is_norm(const Node* node) {
  return has_port(node, "residual") && has_argument(node, "x") && node->namedInput("residual")->mustBeNone() &&
         node->namedInput("dtype")->mustBeNone() &&
         torch::jit::toIValue(node->namedInput("rounded"))->toListRef().empty();
}

std::optional<Norm> norm_behind(const Value* value) {
  static const OpName cast("aten::type_as");
  Node* node = const_cast<Node*>(value->node());
  if (value->uses().size() != 1) return std::nullopt;
  if (!cast.is_of(node)) return is_norm(node) ? std::optional(Norm{node, nullptr}) : std::nullopt;
  Node* given = node->input(0)->node();
  return is_norm(given) && node->input(0)->uses().size() == 1 ? std::optional(Norm{given, node->input(1)})
                                                              : std::nullopt;
}

std::optional<std::string> reason_against(const Node* add, const Norm& norm, const Value* residual,
                                          const StrideReaders& readers) {
  if (!is_one(add->input(2))) return "alpha is not 1";
  if (!is_tensor(residual)) return "what it is added to is a number";
  if (const auto reason = reason_against_waiting(norm.node, add)) return reason;
  if (residual == add->input(1) && readers.see(add->output())) return "somebody sees its strides, which are the norm's";
  return std::nullopt;
}

Node* summed(const Norm& norm, Value* residual, Graph& graph) {
  Node* made = graph.insertNode(graph.createClone(norm.node, [](Value* input) { return input; }));
  set_argument(made, "residual", residual);
  if (norm.like) set_argument(made, "like", norm.like);
  return made;
}

bool run(Context& context) {
  bool changed = false;
  const StrideReaders readers(context.graph);
  for_each(context.graph, "aten::add.Tensor", [&](Node* add) {
    for (const size_t i : {1, 0}) {
      const auto norm = norm_behind(add->input(i));
      if (!norm) continue;
      Value* residual = add->input(1 - i);
      if (const auto reason = reason_against(add, *norm, residual, readers)) {
        context.declined(add, *reason);
        continue;
      }
      context.merged(add, "added by ", norm->node);
      const torch::jit::WithInsertPoint guard(add);
      replace(add, summed(*norm, residual, *context.graph));
      changed = true;
      return;
    }
  });
  return changed;
}

}  // namespace

Pass fuse_norm_sum() { return {"fuse_norm_sum", run, needs(ops_lowered)}; }

}  // namespace ipex::passes
