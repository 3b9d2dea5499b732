// join_linears: linears of one input are one op, which wakes threads once and cuts all their columns into equal shares.
//
//   before   %q = ipex::linear_run(%x, %query, %none, ..)
//            %k = ipex::linear_run(%x, %key, %none, ..)
//   after    %layers = prim::ListConstruct(%query, %key)
//            %joined = ipex::joined_linears_prepack(%layers)
//            %results = ipex::joined_linears_run(%x, %joined)
//            %q, %k = prim::ListUnpack(%results)
//
// So query, key and value of an attention: all linears, or all of codes (ipex::weight_only_linear_run). The layers have any
// post-ops without operands; one of codes may have the result of another for its operand, as an up projection that is multiplied
// with its gate, and the joined op is told of which. All results are there from the first layer on, so that memory would grow if
// they waited for their readers: what stands between the layers is neither another packed op nor an attention. Nor may anything
// be overwritten in between.
#include <algorithm>
#include <optional>

#include "anchor/anchor.h"
#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

std::optional<Anchor> layer_of(Node* node) {
  static const OpName linear("ipex::linear_run"), of_codes("ipex::weight_only_linear_run");
  if (!linear.is_of(node) && !of_codes.is_of(node)) return std::nullopt;
  const auto anchor = Anchor::producing(node->output());
  const bool fits = anchor && anchor->operands().size() <= (of_codes.is_of(node) ? 1 : 0) &&
                    (of_codes.is_of(node) || anchor->dtype() == at::kFloat) &&
                    anchor->prepack()->output()->uses().size() == 1;
  return fits ? anchor : std::nullopt;
}

// Which of the layers gives the operand of this one. -1 where it has none; nothing where none of them does.
std::optional<int64_t> operand_in(const std::vector<Anchor>& layers, const Anchor& layer) {
  if (layer.operands().empty()) return -1;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].output() == layer.operands()[0]) return static_cast<int64_t>(i);
  }
  return std::nullopt;
}

bool continues(const std::vector<Anchor>& layers, const Anchor& layer) {
  return layers.front().input() == layer.input() && layers.front().run()->kind() == layer.run()->kind() &&
         operand_in(layers, layer);
}

bool ends_a_row(const Node* node) {
  static const OpName attention("ipex::attention"), torchs("ipex::scaled_dot_product_attention");
  return is_run(node) || attention.is_of(node) || torchs.is_of(node) || !node->blocks().empty() || stops_motion(node);
}

void join(const std::vector<Anchor>& layers, Context& context) {
  Node* first = layers.front().run();
  context.applied(first, c10::str(layers.size(), " linears of one input in one call"));
  std::vector<Value*> contexts;
  for (const Anchor& layer : layers) {
    move_prepack_before(layer.prepack(), first);
    contexts.push_back(layer.prepack()->output());
  }
  const torch::jit::WithInsertPoint guard(first);
  Graph* graph = first->owningGraph();
  Value* list = graph->insertNode(graph->createList(contexts[0]->type(), contexts))->output();
  Value* joined = graph->insert(Symbol::fromQualString("ipex::joined_linears_prepack"), {list});
  std::vector<torch::jit::NamedValue> arguments{layers.front().input(), joined};
  std::vector<int64_t> operands;
  for (const Anchor& layer : layers) operands.push_back(*operand_in(layers, layer));
  if (std::any_of(operands.begin(), operands.end(), [](int64_t i) { return i >= 0; })) arguments.emplace_back(operands);
  Value* results = graph->insert(Symbol::fromQualString("ipex::joined_linears_run"), arguments);
  Node* unpack = graph->insertNode(graph->createListUnpack(results, layers.size()));
  for (Node* node : {results->node(), unpack}) {
    node->setSourceRange(first->sourceRange());
    node->setScope(first->scope());
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    layers[i].output()->replaceAllUsesWith(unpack->output(i));
    unpack->output(i)->copyMetadata(layers[i].output());
    layers[i].run()->destroy();
  }
}

bool run_on(Block* block, Context& context) {
  std::vector<std::vector<Anchor>> rows;
  bool changed = false, goes_on = false;
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) changed |= run_on(inner, context);
    const auto layer = layer_of(node);
    if (layer && goes_on && continues(rows.back(), *layer)) {
      rows.back().push_back(*layer);
    } else if (layer && layer->operands().empty()) {
      rows.push_back({*layer});
      goes_on = true;
    } else if (ends_a_row(node)) {
      goes_on = false;
    }
  }
  for (const auto& layers : rows) {
    if (layers.size() == 1) continue;
    join(layers, context);
    changed = true;
  }
  return changed;
}

bool run(Context& context) { return run_on(context.graph->block(), context); }

}  // namespace

Pass join_linears() { return {"join_linears", run, needs(ops_lowered) + breaks(layers_apart)}; }

}  // namespace ipex::passes
