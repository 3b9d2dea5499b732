// fuse_add_norm: a residual is added and normalised in one pass over memory.
//
//   before   %sum = aten::add(%a, %b, %alpha=1)
//            %y = aten::layer_norm(%sum, %shape, %weight, %bias, %eps, ..)
//   after    %y, %sum = ipex::layer_norm.of_sum(%a, %b, %shape, %weight, %bias, %eps, %keep_sum, %in_place)
//
// and so for ipex::rms_norm.
// %sum may have other readers, as in a network that normalises first and adds to the stream: keep_sum says so. Broadcast
// operands, other dtypes and the like are left to aten when it runs. So is an addition in place of something of another
// dtype or shape, which keeps both.
// Declines when alpha is not 1, when an operand is a number, and when %sum is read before it is normalised.
#include "ir/calls.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// `arguments` are what the norm is given behind its tensor.
Node* build(const Match& match, const char* op, std::vector<Value*> arguments) {
  Graph* graph = match.last()->owningGraph();
  const Node* add = match["sum"]->node();
  arguments.insert(arguments.begin(), {add->input(0), add->input(1)});
  arguments.push_back(graph->insertConstant(match["sum"]->uses().size() > 1));
  arguments.push_back(graph->insertConstant(op_of(add)->memory == Memory::itself));
  return insert_call(*graph, {op, "of_sum"}, arguments);
}

Spelling spelling(const char* norm) {
  return Spelling(std::string("%sum = aten::add(%a, %b, %alpha)\n") + norm)
      .declines_unless("a", is_tensor, "its operand is a number")
      .declines_unless("b", is_tensor, "its operand is a number")
      .declines_unless("alpha", is_one, "alpha is not 1")
      .keep("sum", 1);
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      spelling("%y = aten::layer_norm(%sum, %shape, %weight, %bias, %eps, %cudnn)")
          .becomes("ipex::layer_norm.of_sum",
                   [](const Match& match) {
                     return build(match, "ipex::layer_norm",
                                  {match["shape"], match["weight"], match["bias"], match["eps"]});
                   }),
      spelling(
          "%y = ipex::rms_norm.(%sum, %weight, %eps, %cast, %shape, %moves, %numbers, %moves_result, %residual, %like, "
          "%dtype, %rounded)")
          .becomes("ipex::rms_norm.of_sum", [](const Match& match) {
            return build(match, "ipex::rms_norm", {match["weight"], match["eps"], match["cast"], match["shape"]});
          })};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass fuse_add_norm() { return {"fuse_add_norm", run, needs(aten_names, plain_arithmetic)}; }

}  // namespace ipex::passes
