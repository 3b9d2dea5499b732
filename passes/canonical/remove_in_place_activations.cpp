// remove_in_place_activations: an activation that overwrites its input becomes one that doesn't, where nobody can tell.
//
//   before   %z = aten::relu_(%y)
//   after    %z = aten::relu(%y)      and later readers of %y read %z
//
// So for every activation that keeps the dtype. Those that refuse integers in place, and give floats of them else, have
// to have a floating input. Arithmetic in place has the dtype of its first operand, and is fused as what it is. What no
// packed op has taken by the end is in place again.
// Declines when somebody may see the write: a view, a graph input, a graph output, or memory that is not known to be %y's
// own (unseen_write.h).
#include "ir/floating.h"
#include "ir/graph_walk.h"
#include "ir/unseen_write.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// The same op with a result of its own, for an activation in place that keeps the dtype. None for other nodes.
std::optional<Symbol> out_of_place(const Node* node) {
  const Op* op = op_of(node);
  if (!op || op->memory != Memory::itself || op->writes != Writes::elements) return std::nullopt;
  const std::string name = op->name.substr(0, op->name.size() - 1);
  const Op* plain = OpName::row(name + "." + op->overload);
  return plain && plain->has(trait::elementwise | trait::keeps_dtype) ? std::optional(Symbol::fromQualString(name))
                                                                      : std::nullopt;
}

bool run(Context& context) {
  static const OpName relu_("aten::relu_");
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    const auto plain = out_of_place(node);
    if (!plain) return;
    if (!relu_.is_of(node) && !is_floating(node->input(0))) return;
    if (const auto reason = reason_against_separating(node)) return context.declined(node, *reason);
    const torch::jit::WithInsertPoint guard(node);
    separate(node, context.graph->insertNode(context.graph->create(*plain, node->inputs())));
    changed = true;
  });
  return changed;
}

}  // namespace

Pass remove_in_place_activations() { return {"remove_in_place_activations", run}; }

}  // namespace ipex::passes
