// fuse_norm_casts: the casts around a layer_norm between layers of 16 bits are part of its pass over memory.
//
//   before   %a = ipex::restore_precision(%x)
//            %y = ipex::layer_norm(%a, %shape, %w, %b, %eps)
//            %l = ipex::lower_precision(%y, %dtype)
//   after    %l = ipex::layer_norm.lowered(%x, %shape, %w, %b, %eps, %dtype)
//
// and so for a norm that moves rows, and for one that adds two streams, which reads what it did before. The norm computes in
// float32 either way. Where others read the result in float32 too, it is stored so.
//
// Declines where something is overwritten between a cast and the norm.
#include <torch/csrc/jit/ir/constants.h>

#include "chains/elementwise_casts.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_norm(const Node* node) {
  static const OpName norms[] = {OpName("ipex::layer_norm."), OpName("ipex::layer_norm_to_rows."),
                                 OpName("ipex::layer_norm_of_rows.")};
  return is_of_any(norms, node);
}

bool is_norm_of_sum(const Node* node) {
  static const OpName norms[] = {OpName("ipex::add_layer_norm."), OpName("ipex::add_layer_norm_to_rows."),
                                 OpName("ipex::add_layer_norm_of_rows.")};
  return is_of_any(norms, node);
}

bool fuse(Context& context, Node* norm) {
  std::vector<Value*> inputs = norm->inputs().vec();
  const Node* cast = is_norm(norm) ? restoring_cast(inputs[0]) : nullptr;
  const bool restores = cast && can_wait(cast, norm);
  const auto lowered_to = dtype_of_all_readers(norm->output(0));
  if (!restores && !lowered_to) return false;
  context.applied(norm, "casts in the same pass over memory");
  if (restores) inputs[0] = without_cast(inputs[0]);
  const torch::jit::WithInsertPoint guard(norm);
  Graph* graph = norm->owningGraph();
  inputs.push_back(graph->insertConstant(lowered_to.value_or(at::kFloat)));
  Node* made = graph->insertNode(graph->create(norm->kind(), inputs, norm->outputs().size()));
  made->copyMetadata(norm);
  for (size_t i = 0; i < made->outputs().size(); ++i) {
    made->output(i)->copyMetadata(norm->output(i));
    norm->output(i)->replaceAllUsesWith(made->output(i));
  }
  norm->destroy();
  if (lowered_to) remove_casts_of(made->output(0));
  return true;
}

bool run(Context& context) {
  std::vector<Node*> norms;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (is_norm(node) || is_norm_of_sum(node)) norms.push_back(node);
  });
  bool changed = false;
  for (Node* norm : norms) changed |= fuse(context, norm);
  return changed;
}

}  // namespace

Pass fuse_norm_casts() { return {"fuse_norm_casts", run, needs(ops_lowered)}; }

}  // namespace ipex::passes
