// keep_streams_contiguous: what is transposed on its way to norms of rows is made contiguous once.
//
//   before   %f = aten::flatten(%image, 2, -1)
//            %t = aten::transpose(%f, 1, 2)
//            %y, %sum = ipex::add_layer_norm(%t, %b, ..)      ..      %z, .. = ipex::add_layer_norm(%sum, %c, ..)
//   after    %t = aten::transpose(%f, 1, 2)
//            %d = aten::contiguous(%t)
//            %y, %sum = ipex::add_layer_norm(%d, %b, ..)      ..
//
// So begins a transformer on patches of an image. A sum takes the strides of its first operand, and so in eager all the
// stream of residuals lies transposed: each norm, and each product after it, reads it column by column.
// The layout of %image then need not be restored: channels-last, %t is contiguous as it is.
// Declines where somebody can tell (stride_readers.h): a result that is returned has eager's strides.
#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_made_contiguous(const Value* value) {
  return std::all_of(value->uses().begin(), value->uses().end(),
                     [](const Use& use) { return use.user->kind() == c10::aten::contiguous; });
}

bool run(Context& context) {
  if (writes_to_shared_memory(context.graph)) return false;
  std::vector<Node*> candidates;
  const StrideReaders readers(context.graph);
  for_each_node(context.graph->block(), [&](Node* node) {
    if (has_trait(node, trait::moves_dimensions) && readers.normalize(node->output()) &&
        !is_made_contiguous(node->output())) {
      candidates.push_back(node);
    }
  });
  if (candidates.empty()) return false;
  const OverwrittenValues overwritten(context.graph);
  bool changed = false;
  for (Node* node : candidates) {
    if (readers.see(node->output())) {
      context.declined(node, "not made contiguous: the strides of a result depend on it");
      continue;
    }
    if (overwritten.contain(node->output())) {
      context.declined(node, "not made contiguous: something is overwritten");
      continue;
    }
    const torch::jit::WithInsertPoint guard(node->next());
    Graph* graph = context.graph.get();
    Value* format = graph->insertConstant(static_cast<int64_t>(at::MemoryFormat::Contiguous));
    Node* made = graph->insertNode(graph->create(c10::aten::contiguous, {node->output(), format}));
    made->setSourceRange(node->sourceRange());
    made->setScope(node->scope());
    node->output()->replaceAllUsesAfterNodeWith(made, made->output());
    context.applied(node, "made contiguous for the norms that follow");
    changed = true;
  }
  return changed;
}

}  // namespace

Pass keep_streams_contiguous() { return {"keep_streams_contiguous", run, needs(eager_layouts)}; }

}  // namespace ipex::passes
