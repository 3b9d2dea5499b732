// separate_arithmetic: arithmetic that overwrites its first operand, and a mask that does, give a tensor of their own, where
// nobody can tell.
//
//   before   %p = aten::slice(%joined, ..)    %z = aten::add_(%p, %other, %alpha)
//   after    %p = aten::slice(%joined, ..)    %z = ipex::add_like(%p, %other, %alpha)
//
// What is channels-last is a copy, which doesn't see a write: so stretches go on. ipex::add_like has the dtype and shape of
// its first operand, as aten::add_ has, and as aten::add has not.
// Declines when somebody may see the write (unseen_write.h).
#include "ir/graph_walk.h"
#include "ir/unseen_write.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

const std::pair<const char*, const char*> ops[] = {{"aten::add_.Tensor", "ipex::add_like"},
                                                   {"aten::sub_.Tensor", "ipex::sub_like"},
                                                   {"aten::mul_.Tensor", "ipex::mul_like"},
                                                   {"aten::div_.Tensor", "ipex::div_like"},
                                                   {"aten::masked_fill_.Scalar", "ipex::masked_fill_like"}};

bool run(Context& context) {
  bool changed = false;
  for (const auto& [in_place, own] : ops) {
    for_each(context.graph, in_place, [&, own = own](Node* node) {
      if (const auto reason = reason_against_separating(node)) return context.declined(node, *reason);
      const torch::jit::WithInsertPoint guard(node);
      separate(node, context.graph->insertNode(context.graph->create(Symbol::fromQualString(own), node->inputs())));
      changed = true;
    });
  }
  return changed;
}

}  // namespace

Pass separate_arithmetic() { return {"separate_arithmetic", run}; }

}  // namespace ipex::passes
