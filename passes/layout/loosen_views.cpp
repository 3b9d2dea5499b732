#include "layout/loosen_views.h"

#include <unordered_set>

#include "ir/graph_walk.h"

namespace ipex::passes {
namespace {

// The reshape that gives what the view does.
Node* loosened(Node* view) {
  static const OpName view_as("aten::view_as");
  const Symbol kind = view_as.is_of(view) ? c10::aten::reshape_as : c10::aten::reshape;
  const torch::jit::WithInsertPoint guard(view);
  Node* reshape = view->owningGraph()->insertNode(view->owningGraph()->create(kind, view->inputs()));
  reshape->copyMetadata(view);
  reshape->output()->copyMetadata(view->output());
  view->output()->replaceAllUsesWith(reshape->output());
  view->destroy();
  return reshape;
}

// The same of an op that begins with a view.
void loosen_first_view(Node* node) {
  static const OpName image_weights("ipex::image_weights_convolution");
  if (!image_weights.is_of(node)) return;
  const torch::jit::WithInsertPoint guard(node);
  const auto views = node->schema().argumentIndexWithName("views");
  node->replaceInput(static_cast<size_t>(*views), node->owningGraph()->insertConstant(false));
}

// Whether what this reader gives has strides that don't depend on those of the value. A residual of a packed op may
// decide them.
bool gives_strides_of_its_own(const Use& use) {
  static const OpName contiguous("aten::contiguous"), restore("ipex::restore_layout");
  const Op* op = op_of(use.user);
  const bool is_operand = op && op->packed && op->packed->operands == static_cast<int>(use.offset);
  return (op && op->has(trait::hides_strides) && !is_operand) || contiguous.is_of(use.user) || restore.is_of(use.user);
}

}  // namespace

void loosen_views(const std::vector<Value*>& values) {
  std::vector<Value*> left = values;
  std::unordered_set<const Value*> known(left.begin(), left.end());
  while (!left.empty()) {
    Value* value = left.back();
    left.pop_back();
    std::unordered_set<const Node*> gone;  // a view as itself is two uses
    for (const Use& use : std::vector<Use>(value->uses())) {
      if (gone.count(use.user)) continue;
      if (reads_only_sizes(use) || gives_strides_of_its_own(use)) continue;
      loosen_first_view(use.user);
      std::vector<Value*> results = passed_on(use);
      if (results.empty() && is_view_by_sizes(use.user)) {
        gone.insert(use.user);
        results = loosened(use.user)->outputs().vec();
      } else if (results.empty()) {
        results = use.user->outputs().vec();
      }
      for (Value* result : results) {
        if (known.insert(result).second) left.push_back(result);
      }
    }
  }
}

}  // namespace ipex::passes
