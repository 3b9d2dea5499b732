// prepack_matmul: a product of two activations becomes an anchor too, so that post-ops can join it.
//
//   before   %y = aten::matmul(%a, %b)
//   after    %context = ipex::matmul_prepack(%post_ops=[])
//            %y = ipex::matmul_run(%a, %context, %operands=[], %eager_layout=1, %b, %of_batches=0)
//
//   before   %y = aten::baddbmm(%c, %a, %b, %beta=1, %alpha)
//   after    %t = ipex::baddbmm_term(%c, %a)
//            %p = ipex::matmul_run(%a, .., %b, %of_batches=1)    %s = aten::mul(%p, %alpha)
//            %y = aten::add_(%s, %t, 1)
//
// aten::bmm and aten::baddbmm refuse factors that aten::matmul would broadcast: so does of_batches. baddbmm_term is %c, and
// refuses another dtype than %a's, as aten::baddbmm does. In place, because %c must not widen the product.
// Declines when beta or alpha is no constant, or beta not 1.
#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

Value* product(Node* node, Value* a, Value* b, bool of_batches) {
  const Anchor anchor = Anchor::insert_before(node, "matmul", {}, a);
  anchor.run()->addInput(b);
  const torch::jit::WithInsertPoint guard(anchor.run());
  anchor.run()->addInput(node->owningGraph()->insertConstant(of_batches));
  return anchor.output();
}

bool run(Context& context) {
  bool changed = false;
  for (const char* kind : {"aten::matmul", "aten::bmm"}) {
    for_each(context.graph, kind, [&](Node* node) {
      context.applied(node, "an anchor for post-ops");
      replace(node, product(node, node->input(0), node->input(1), node->kind() == c10::aten::bmm)->node());
      changed = true;
    });
  }
  for_each(context.graph, "aten::baddbmm", [&](Node* node) {
    const auto beta = number(node->namedInput("beta")), alpha = number(node->namedInput("alpha"));
    if (beta != 1 || !alpha) return context.declined(node, "it scales what it adds");
    context.applied(node, "an anchor for post-ops");
    const torch::jit::WithInsertPoint guard(node);
    Value* a = node->namedInput("batch1");
    Value* term = context.graph->insert(Symbol::fromQualString("ipex::baddbmm_term"), {node->namedInput("self"), a});
    Value* scaled = product(node, a, node->namedInput("batch2"), /*of_batches=*/true);
    if (alpha != 1) scaled = context.graph->insert(c10::aten::mul, {scaled, node->namedInput("alpha")});
    Value* one = context.graph->insertConstant(1);
    Node* add = context.graph->create(c10::aten::add_, {scaled, term, one});
    replace(node, context.graph->insertNode(add));
    changed = true;
  });
  return changed;
}

}  // namespace

Pass prepack_matmul() { return {"prepack_matmul", run, needs(one_linear_pattern)}; }

}  // namespace ipex::passes
