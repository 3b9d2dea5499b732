// share_embedding_weight: an embedding whose weight is that of a linear too, as in language models, reads the packed one.
//
//   before   %context = ipex::linear_prepack(%weight, ..)
//            %y = ipex::look_up(%weight, %indices, ..)
//   after    %y = ipex::embedding(%indices, %context)
//
// Else the weight would be there twice, packed and plain. Declines when the linear is in a chain, or stands in another block.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "anchor/anchor.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool are_same(const Value* a, const Value* b) {
  const auto x = torch::jit::toIValue(a), y = torch::jit::toIValue(b);
  if (!x || !y || !x->isTensor() || !y->isTensor()) return false;
  const at::Tensor &s = x->toTensor(), &t = y->toTensor();
  return s.scalar_type() == t.scalar_type() && s.sizes() == t.sizes() && s.strides() == t.strides() &&
         s.is_alias_of(t) && s.storage_offset() == t.storage_offset();
}

std::optional<std::string> reason_against(const Node* prepack, const Node* embedding) {
  const auto is_constant = [](const Value* input) { return input->node()->kind() == c10::prim::Constant; };
  const auto is_list = [](const Use& use) { return makes_list(use.user); };
  const auto& inputs = prepack->inputs();
  const auto& uses = prepack->output()->uses();
  if (prepack->owningBlock() != embedding->owningBlock()) return "the linear with its weight stands in another block";
  if (std::any_of(uses.begin(), uses.end(), is_list)) return "the linear with its weight is in a chain";
  const bool is_packed_now = std::all_of(inputs.begin(), inputs.end(), is_constant);
  return is_packed_now ? std::nullopt : std::optional("the linear with its weight is not packed now");
}

bool run(Context& context) {
  std::vector<Node*> prepacks;
  for_each(context.graph, "ipex::linear_prepack", [&](Node* node) { prepacks.push_back(node); });
  bool changed = false;
  for_each(context.graph, "ipex::look_up", [&](Node* node) {
    const auto prepack = std::find_if(prepacks.begin(), prepacks.end(), [&](const Node* candidate) {
      return are_same(candidate->input(0), node->input(0));
    });
    if (prepack == prepacks.end()) return;
    if (const auto reason = reason_against(*prepack, node)) return context.declined(node, *reason);
    context.applied(node, "reads the packed weight of a linear");
    move_prepack_before(*prepack, node);
    const torch::jit::WithInsertPoint guard(node);
    replace(node,
            context.graph->insert(Symbol::fromQualString("ipex::embedding"), {node->input(1), (*prepack)->output()})
                ->node());
    changed = true;
  });
  return changed;
}

}  // namespace

Pass share_embedding_weight() { return {"share_embedding_weight", run, {}, /*reasons_stay=*/true}; }

}  // namespace ipex::passes
