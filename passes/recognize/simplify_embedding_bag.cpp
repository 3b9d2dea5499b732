// simplify_embedding_bag: an embedding_bag of which only the embeddings are read doesn't work out the rest.
//
//   before   %y, %offset2bag, %bag_size, %max_indices = aten::embedding_bag(%weight, %indices, %offsets,
//                %scale_grad_by_freq=0, %mode, %sparse=0, %per_sample_weights, %include_last_offset, %padding_idx)
//   after    %y = ipex::embedding_bag(%weight, %indices, %offsets, %mode, %per_sample_weights, %include_last_offset,
//                %padding_idx)
//
// Declines when somebody reads one of the other results, or when an argument for the gradient is set.
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::WithInsertPoint;

std::optional<std::string> reason_against(const Node* node) {
  for (size_t i = 1; i < node->outputs().size(); ++i) {
    if (!node->output(i)->uses().empty()) return "what only its gradient needs is read";
  }
  for (const char* name : {"scale_grad_by_freq", "sparse"}) {
    if (!is_false(node->namedInput(name))) return std::string("its ") + name + " is not False";
  }
  return std::nullopt;
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::embedding_bag", [&](Node* node) {
    if (const auto reason = reason_against(node)) return context.declined(node, *reason);
    context.applied(node, "only what is read is computed");
    const WithInsertPoint guard(node);
    const bool has_padding = node->schema().argumentIndexWithName("padding_idx").has_value();
    Value* padding =
        has_padding ? node->namedInput("padding_idx") : context.graph->insertConstant(torch::jit::IValue());
    Value* embeddings = context.graph->insert(
        Symbol::fromQualString("ipex::embedding_bag"),
        {node->namedInput("weight"), node->namedInput("indices"), node->namedInput("offsets"), node->namedInput("mode"),
         node->namedInput("per_sample_weights"), node->namedInput("include_last_offset"), padding});
    embeddings->node()->setSourceRange(node->sourceRange());
    embeddings->node()->setScope(node->scope());
    embeddings->copyMetadata(node->output(0));
    node->output(0)->replaceAllUsesWith(embeddings);
    node->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass simplify_embedding_bag() { return {"simplify_embedding_bag", run}; }

}  // namespace ipex::passes
