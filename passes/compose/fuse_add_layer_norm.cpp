// fuse_add_layer_norm: a residual is added and normalised in one pass over memory.
//
//   before   %sum = aten::add(%a, %b, %alpha=1)
//            %y = aten::layer_norm(%sum, %shape, %weight, %bias, %eps, ..)
//   after    %y, %sum = ipex::add_layer_norm(%a, %b, %shape, %weight, %bias, %eps, %keep_sum, %in_place)
//
// %sum may have other readers, as in a network that normalises first and adds to the stream: keep_sum says so. Broadcast
// operands, other dtypes and the like are left to aten when it runs. So is an addition in place of something of another
// dtype or shape, which keeps both.
// Declines when alpha is not 1, when an operand is a number, and when %sum is read before it is normalised.
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

Node* build(const Match& match) {
  Graph* graph = match.last()->owningGraph();
  const bool keep_sum = match["sum"]->uses().size() > 1;
  const Node* add = match["sum"]->node();
  Node* made =
      graph->create(Symbol::fromQualString("ipex::add_layer_norm"),
                    {add->input(0), add->input(1), match["shape"], match["weight"], match["bias"], match["eps"],
                     graph->insertConstant(keep_sum), graph->insertConstant(op_of(add)->memory == Memory::itself)},
                    /*num_outputs=*/2);
  return graph->insertNode(made);
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      Spelling("%sum = aten::add(%a, %b, %alpha)\n"
               "%y = aten::layer_norm(%sum, %shape, %weight, %bias, %eps, %cudnn)")
          .declines_unless("a", is_tensor, "its operand is a number")
          .declines_unless("b", is_tensor, "its operand is a number")
          .declines_unless("alpha", is_one, "alpha is not 1")
          .keep("sum", 1)
          .becomes("ipex::add_layer_norm", build)};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass fuse_add_layer_norm() { return {"fuse_add_layer_norm", run, needs(aten_names, plain_arithmetic)}; }

}  // namespace ipex::passes
