// chain_linears: linears that follow one another are one op, which costs small ones less than each being called.
//
//   before   %y = ipex::linear_run(%x, %first, %none, ..)
//            %z = ipex::linear_run(%y, %second, %none, ..)
//   after    %layers = prim::ListConstruct(%first, %second)
//            %chain = ipex::linear_chain_prepack(%layers)
//            %z = ipex::linear_chain_run(%x, %chain)
//
// A chain has as many layers as there are, each with any post-ops that have no operand. The op takes them one after the
// other where the call is not a small one.
// A chain ends before a linear whose post-ops have operands, whose dtype is another, or whose input has another width,
// and where somebody else reads what lies between, or what comes in is overwritten before the last layer reads it.
#include <unordered_set>

#include "anchor/anchor.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

std::optional<Anchor> linear_producing(const Value* value) {
  static const OpName linear("ipex::linear_run");
  return linear.is_of(value->node()) ? Anchor::producing(value) : std::nullopt;
}

bool can_be_a_layer(const Anchor& linear) {
  return linear.operands().empty() && linear.dtype() == at::kFloat && linear.prepack()->output()->uses().size() == 1;
}

int64_t input_width(const Anchor& linear) {
  return torch::jit::toIValue(linear.argument("weight"))->toTensor().size(1);
}

// The linear whose result nobody but `linear` reads, where the two can be one op.
std::optional<Anchor> layer_before(const Anchor& linear) {
  const auto before = linear_producing(linear.input());
  if (!before || !can_be_a_layer(*before) || before->output()->uses().size() != 1 ||
      before->output_channels() != input_width(linear)) {
    return std::nullopt;
  }
  return before;
}

// The layers that end with `last`, the last first.
std::vector<Anchor> chain_to(const Anchor& last) {
  std::vector<Anchor> layers{last};
  while (const auto before = layer_before(layers.back())) {
    if (!can_wait(before->run(), last.run())) break;
    layers.push_back(*before);
  }
  return layers;
}

bool run(Context& context) {
  std::vector<Node*> linears;
  for_each(context.graph, "ipex::linear_run", [&](Node* node) { linears.push_back(node); });
  bool changed = false;
  std::unordered_set<const Node*> taken;
  // From the end, so that a chain is as long as it can be.
  for (auto last = linears.rbegin(); last != linears.rend(); ++last) {
    const auto linear = linear_producing((*last)->output());
    if (taken.count(*last) || !linear || !can_be_a_layer(*linear)) continue;
    const std::vector<Anchor> layers = chain_to(*linear);
    if (layers.size() == 1) continue;
    std::vector<Value*> contexts;
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      contexts.push_back(layer->prepack()->output());
      taken.insert(layer->run());
    }
    context.applied(*last, c10::str(layers.size(), " linears in one call"));
    const torch::jit::WithInsertPoint guard(*last);
    Value* list = context.graph->insertNode(context.graph->createList(contexts[0]->type(), contexts))->output();
    Value* chain = context.graph->insert(Symbol::fromQualString("ipex::linear_chain_prepack"), {list});
    Value* result =
        context.graph->insert(Symbol::fromQualString("ipex::linear_chain_run"), {layers.back().input(), chain});
    replace(*last, result->node());
    changed = true;
  }
  return changed;
}

}  // namespace

Pass chain_linears() { return {"chain_linears", run, breaks(layers_apart)}; }

}  // namespace ipex::passes
