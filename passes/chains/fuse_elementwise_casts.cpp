// fuse_elementwise_casts: the casts around elementwise ops between layers of 16 bits are part of their pass over memory.
//
//   before   %a = ipex::restore_precision(%x)
//            %y = ipex::elementwise([%a, %g], ["mul 0 1"])
//            %l = ipex::lower_precision(%y, %dtype)
//   after    %l = ipex::elementwise.cast([%x, %g], ["mul 0 1"], [True, False], %dtype)
//
// The steps compute in float32, as before: numbers of 16 bits are read and written, and no float32 copy lies in between. Where
// others read the result in float32 too, and of sums, only what is read is cast.
//
// Declines where something is overwritten between a cast and the op.
#include <torch/csrc/jit/ir/constants.h>

#include "chains/elementwise_casts.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool fuse(Context& context, Node* node) {
  static const OpName elementwise("ipex::elementwise.");
  std::vector<Value*> inputs = node->input(0)->node()->inputs().vec();
  c10::List<bool> restored;
  bool restores = false;
  for (Value*& input : inputs) {
    const Node* cast = restoring_cast(input);
    const bool is_cast = cast && can_wait(cast, node);
    if (is_cast) input = without_cast(input);
    restored.push_back(is_cast);
    restores |= is_cast;
  }
  const bool is_sum = !elementwise.is_of(node);
  const auto lowered_to = is_sum ? std::nullopt : dtype_of_all_readers(node->output());
  if (!restores && !lowered_to) return false;
  context.applied(node, "casts in the same pass over memory");
  const torch::jit::WithInsertPoint guard(node);
  Graph* graph = node->owningGraph();
  Value* list = graph->insertNode(graph->createList(c10::TensorType::get(), inputs))->output();
  std::vector<Value*> arguments = node->inputs().vec();
  arguments[0] = list;
  arguments.push_back(graph->insertConstant(restored));
  if (!is_sum) {
    arguments.push_back(graph->insertConstant(lowered_to ? torch::jit::IValue(*lowered_to) : torch::jit::IValue()));
  }
  Node* made = graph->insertNode(graph->create(node->kind(), arguments));
  made->copyMetadata(node);
  made->output()->copyMetadata(node->output());
  node->output()->replaceAllUsesWith(made->output());
  node->destroy();
  if (lowered_to) remove_casts_of(made->output());
  return true;
}

bool run(Context& context) {
  std::vector<Node*> nodes;
  for (const char* op : {"ipex::elementwise.", "ipex::elementwise_sum.", "ipex::elementwise_mean."}) {
    for_each(context.graph, op, [&](Node* node) { nodes.push_back(node); });
  }
  bool changed = false;
  for (Node* node : nodes) changed |= fuse(context, node);
  return changed;
}

}  // namespace

Pass fuse_elementwise_casts() { return {"fuse_elementwise_casts", run}; }

}  // namespace ipex::passes
