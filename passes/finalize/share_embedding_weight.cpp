// share_embedding_weight: an embedding whose weight is that of a linear too, as in language models, reads the packed one.
//
//   before   %context = ipex::linear_prepack(%weight, ..)
//            %y = aten::embedding(%weight, %indices, ..)
//   after    %y = ipex::embedding(%indices, %context)
//
// Else the weight would be there twice, packed and plain. Runs after all that changes the weight of a linear, and after
// chain_linears, which takes contexts to itself. Declines when the linear stands in another block.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <vector>

#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

bool are_same(const Value* a, const Value* b) {
  const auto x = torch::jit::toIValue(a), y = torch::jit::toIValue(b);
  if (!x || !y || !x->isTensor() || !y->isTensor()) return false;
  const at::Tensor &s = x->toTensor(), &t = y->toTensor();
  return s.is_same(t) || (s.scalar_type() == t.scalar_type() && s.sizes() == t.sizes() && s.strides() == t.strides() &&
                          s.device() == t.device() && s.is_alias_of(t) && s.storage_offset() == t.storage_offset());
}

// Its inputs are constants, so that it may stand anywhere.
void move_before(Node* prepack, Node* place) {
  if (prepack->isBefore(place)) return;
  for (Value* input : prepack->inputs()) {
    if (!input->node()->isBefore(place)) input->node()->moveBefore(place);
  }
  prepack->moveBefore(place);
}

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  std::vector<Node*> prepacks;
  for_each(graph, "ipex::linear_prepack", [&](Node* node) { prepacks.push_back(node); });
  bool changed = false;
  for_each(graph, "aten::embedding", [&](Node* node) {
    const auto prepack = std::find_if(prepacks.begin(), prepacks.end(), [&](const Node* candidate) {
      return are_same(candidate->input(0), node->input(0));
    });
    if (prepack == prepacks.end()) return;
    const auto is_constant = [](const Value* input) { return input->node()->kind() == c10::prim::Constant; };
    const bool is_run = kind_of((*prepack)->output()->uses()[0].user) == "ipex::linear_run";
    if ((*prepack)->owningBlock() != node->owningBlock() || !is_run ||
        !std::all_of((*prepack)->inputs().begin(), (*prepack)->inputs().end(), is_constant)) {
      return recorder.declined(node, "the linear with its weight stands in a chain or in another block");
    }
    recorder.applied(node, "reads the packed weight of a linear");
    move_before(*prepack, node);
    const torch::jit::WithInsertPoint guard(node);
    replace(node,
            graph->insert(Symbol::fromQualString("ipex::embedding"), {node->input(1), (*prepack)->output()})->node());
    changed = true;
  });
  return changed;
}

}  // namespace

Pass share_embedding_weight() { return {"share_embedding_weight", run}; }

}  // namespace ipex::passes
