// chain_excitations: the average of an image and the convolutions of that single pixel are one op, as in squeeze and excitation.
//
//   before   %m = ipex::mean(%x, [2, 3], True)    or    ipex::adaptive_avg_pool2d(%x, [1, 1])
//            %s = ipex::convolution_run(%m, %squeeze, %none, False)
//            %g = ipex::convolution_run(%s, %excite, %none, False)
//   after    %layers = prim::ListConstruct(%squeeze, %excite)
//            %context = ipex::excitation_prepack(%layers)
//            %g = ipex::excitation_run(%x, %context, [2, 3])
//
// There may be any number of convolutions. Each has microseconds to compute, and costs as much to be called.
// One stays out when its post-ops have operands, somebody else reads what lies between, or sees the strides; all do when the
// image is overwritten before the last one.
#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// The dimensions of the whole images that the node averages. Without a batch there are fewer in front of them.
std::optional<std::vector<int64_t>> averaged_dimensions(const Node* node) {
  static const OpName mean("ipex::mean"), pool("ipex::adaptive_avg_pool2d");
  const std::vector<int64_t> from_the_front{2, 3}, from_the_end{-2, -1};
  if (pool.is_of(node) && is_list_of(node->input(1), {1, 1})) return from_the_end;
  if (!mean.is_of(node) || !is_true(node->input(2))) return std::nullopt;
  return is_list_of(node->input(1), from_the_front) ? std::optional(from_the_front)
         : is_list_of(node->input(1), from_the_end) ? std::optional(from_the_end)
                                                    : std::nullopt;
}

// The layer that is the only reader of this value, where it can be one of the op's.
std::optional<Anchor> layer_after(const Value* pixel) {
  if (pixel->uses().size() != 1) return std::nullopt;
  const Node* reader = pixel->uses()[0].user;
  static const OpName convolution("ipex::convolution_run");
  if (!convolution.is_of(reader)) return std::nullopt;
  const auto anchor = Anchor::producing(reader->output());
  const bool fits = anchor && anchor->input() == pixel && anchor->spatial_rank() == 2 && !anchor->is_transposed() &&
                    anchor->operands().empty() && anchor->prepack()->output()->uses().size() == 1 &&
                    is_false(reader->input(3)) && reader->owningBlock() == pixel->node()->owningBlock();
  return fits ? anchor : std::nullopt;
}

bool chain_after(Node* average, Context& context) {
  std::vector<Anchor> layers;
  for (auto layer = layer_after(average->output()); layer; layer = layer_after(layers.back().output())) {
    layers.push_back(*layer);
  }
  if (layers.empty() || written_between(average, layers.back().run())) return false;
  std::vector<Value*> contexts;
  for (const Anchor& layer : layers) contexts.push_back(layer.prepack()->output());
  Node* last = layers.back().run();
  context.applied(last, c10::str("an average and ", layers.size(), " convolutions of its pixel in one call"));
  const torch::jit::WithInsertPoint guard(last);
  Value* list = context.graph->insertNode(context.graph->createList(contexts[0]->type(), contexts))->output();
  Value* chain = context.graph->insert(Symbol::fromQualString("ipex::excitation_prepack"), {list});
  Value* result = context.graph->insert(Symbol::fromQualString("ipex::excitation_run"),
                                        {average->input(0), chain, *averaged_dimensions(average)});
  replace(last, result->node());
  return true;
}

bool run(Context& context) {
  std::vector<Node*> averages;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (averaged_dimensions(node)) averages.push_back(node);
  });
  bool changed = false;
  for (Node* average : averages) changed |= chain_after(average, context);
  return changed;
}

}  // namespace

Pass chain_excitations() { return {"chain_excitations", run, needs(ops_lowered) + breaks(layers_apart)}; }

}  // namespace ipex::passes
