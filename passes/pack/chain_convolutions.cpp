// chain_convolutions: a convolution of each channel by itself, and those of single pixels before and after it, are one op,
// which need not write to memory what lies between.
//
//   before   %e = ipex::convolution_run(%x, %expand, %none, %layout)
//            %d = ipex::convolution_run(%e, %depthwise, %none, %layout)
//            %y = ipex::convolution_run(%d, %project, %operands, %layout)
//   after    %layers = prim::ListConstruct(%expand, %depthwise, %project)
//            %chain = ipex::convolution_chain_prepack(%layers)
//            %y = ipex::convolution_chain_run(%x, %chain, %operands, %layout)
//
// So in MobileNetV2 and its like. One of the outer layers may be missing. Post-ops with operands are for the last of three.
// The op takes the layers one after the other where the image between them is small.
// A layer stays out when its dtype is another one, its images are not 2-d or somebody else reads what lies between; a block
// stays apart when what comes in is overwritten before its last layer reads it. Layers of 16 bits that compute in float32
// don't round what lies between.
#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

at::Tensor weight_of(const Anchor& convolution) { return toIValue(convolution.argument("weight"))->toTensor(); }

bool can_be_a_layer(const Anchor& anchor) {
  return anchor.spatial_rank() == 2 && anchor.prepack()->output()->uses().size() == 1 && !anchor.is_transposed();
}

bool is_depthwise(const Anchor& convolution) {
  const int64_t groups = toIValue(convolution.argument("groups"))->toInt();
  return groups > 1 && groups == convolution.output_channels() && weight_of(convolution).size(1) == 1;
}

bool is_of_single_pixels(const Anchor& convolution) {
  const at::Tensor weight = weight_of(convolution);
  return weight.size(2) == 1 && weight.size(3) == 1 && toIValue(convolution.argument("groups"))->toInt() == 1;
}

// Whether they are neighbours, the second the only reader of the first.
bool follows(const Anchor& second, const Anchor& first) {
  return second.input() == first.output() && first.output()->uses().size() == 1 && first.operands().empty() &&
         second.dtype() == first.dtype() && second.run()->owningBlock() == first.run()->owningBlock() &&
         is_same_argument(first.run()->input(3), second.run()->input(3));
}

std::optional<Anchor> layer_before(const Anchor& layer) {
  const auto before = Anchor::producing(layer.input());
  const bool fits = before && can_be_a_layer(*before) && is_of_single_pixels(*before) && follows(layer, *before);
  return fits ? before : std::nullopt;
}

std::optional<Anchor> layer_after(const Anchor& layer) {
  if (layer.output()->uses().size() != 1) return std::nullopt;
  Node* reader = layer.output()->uses()[0].user;
  if (reader->outputs().size() != 1) return std::nullopt;
  const auto after = Anchor::producing(reader->output());
  const bool fits = after && can_be_a_layer(*after) && is_of_single_pixels(*after) && follows(*after, layer);
  return fits ? after : std::nullopt;
}

bool chain_around(const Anchor& depthwise, Context& context) {
  if (!depthwise.operands().empty()) return false;
  std::vector<Anchor> layers;
  if (const auto before = layer_before(depthwise)) layers.push_back(*before);
  layers.push_back(depthwise);
  if (const auto after = layer_after(depthwise)) layers.push_back(*after);
  if (layers.size() == 1 || written_between(layers.front().run(), layers.back().run())) return false;
  std::vector<Value*> contexts;
  for (const Anchor& layer : layers) contexts.push_back(layer.prepack()->output());
  Node* last = layers.back().run();
  context.applied(last, c10::str(layers.size(), " convolutions in one call"));
  const torch::jit::WithInsertPoint guard(last);
  Graph* graph = last->owningGraph();
  Value* list = graph->insertNode(graph->createList(contexts[0]->type(), contexts))->output();
  Value* chain = graph->insert(Symbol::fromQualString("ipex::convolution_chain_prepack"), {list});
  Value* result = graph->insert(Symbol::fromQualString("ipex::convolution_chain_run"),
                                {layers.front().input(), chain, last->input(2), last->input(3)});
  replace(last, result->node());
  return true;
}

bool run(Context& context) {
  std::vector<Anchor> depthwise;
  for_each(context.graph, "ipex::convolution_run", [&](Node* node) {
    const auto anchor = Anchor::producing(node->output());
    if (anchor && can_be_a_layer(*anchor) && is_depthwise(*anchor)) depthwise.push_back(*anchor);
  });
  bool changed = false;
  for (const Anchor& anchor : depthwise) changed |= chain_around(anchor, context);
  return changed;
}

}  // namespace

Pass chain_convolutions() { return {"chain_convolutions", run, breaks(layers_apart)}; }

}  // namespace ipex::passes
