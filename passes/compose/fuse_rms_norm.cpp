// fuse_rms_norm: the root mean square norm of Llama and T5, in one pass over memory.
//
//   before   %square = aten::pow(%x, %2)
//            %mean = aten::mean(%square, %dims=[-1], %keepdim=1, %dtype=None)
//            %shifted = aten::add(%mean, %eps, %alpha=1)
//            %scale = aten::rsqrt(%shifted)
//            %normal = aten::mul(%x, %scale)
//            %cast = aten::to(%normal, %dtype, ..)           there or not
//            %y = aten::mul(%weight, %cast)
//   after    %y = ipex::rms_norm(%x, %weight, %eps, %dtype, %normalized_shape=None)
//
// The square may be x * x or square(x), the scale also pow(shifted, -0.5), or a division by its sqrt; there may be no weight.
// aten::rms_norm, which aten computes in the same steps, becomes the same op.
// Declines when another exponent, dimension or alpha stands there, when eps is no constant, when a value in between has
// another reader, and when the weight is multiplied in place, which keeps the other's dtype.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/aliasing.h"
#include "ir/calls.h"
#include "ir/constants.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

bool is_last_dimension(const Value* value) { return is_list_of(value, {-1}); }
bool is_int(const Value* value) { return toIValue(value) && toIValue(value)->isInt(); }
bool is_not_in_place(const Value* value) { return is_fresh(value); }

bool is_number_or_none(const Value* value) { return number(value) || is_none(value); }
bool is_tensor_or_none(const Value* value) { return is_tensor(value) || is_none(value); }

Node* build(const Match& match) {
  Graph* graph = match.last()->owningGraph();
  const auto given = [&](const char* name) {
    const auto found = match.values.find(name);
    return found == match.values.end() ? graph->insertConstant(torch::jit::IValue()) : found->second;
  };
  const auto eps = number(match["eps"]);
  Value* own_eps = graph->insertConstant(eps ? torch::jit::IValue(*eps) : torch::jit::IValue());
  return insert_call(*graph, {"ipex::rms_norm", ""},
                     {match["x"], given("weight"), own_eps, given("dtype"), given("shape")});
}

Spelling spelling(const std::string& square, const std::string& scale, const std::string& weight) {
  Spelling result = Spelling(square +
                             "%mean = aten::mean(%square, %dims, %keepdim, %none)\n"
                             "%shifted = aten::add(%mean, %eps, %alpha)\n" +
                             scale + weight)
                        .declines_unless("dims", is_last_dimension, "its mean is not over the last dimension")
                        .declines_unless("keepdim", is_true, "its mean drops a dimension")
                        .declines_unless("none", is_none, "its mean has another dtype")
                        .declines_unless("eps", is_number, "its eps is not a constant")
                        .declines_unless("alpha", is_one, "alpha is not 1");
  if (result.mentions("two")) result = std::move(result).declines_unless("two", equals(2), "its exponent is not 2");
  if (result.mentions("half"))
    result = std::move(result).declines_unless("half", equals(-0.5), "its root is not square");
  if (result.mentions("weight")) {
    result = std::move(result)
                 .declines_unless("weight", is_tensor, "its weight is a number")
                 .declines_unless("y", is_not_in_place, "its weight is multiplied in place");
  } else {
    result = std::move(result).declines_unless("normal", is_not_in_place, "it is scaled in place");
  }
  if (result.mentions("dtype")) {
    result = std::move(result)
                 .declines_unless("dtype", is_int, "it is cast to a dtype that is not a constant")
                 .declines_unless("copy", is_false, "its cast asks for a copy")
                 .declines_unless("format", is_none, "its cast changes the layout");
  }
  return std::move(result).becomes("ipex::rms_norm", build);
}

const char* const squares[] = {"%square = aten::pow(%x, %two)\n", "%square = aten::mul(%x, %x)\n",
                               "%square = aten::square(%x)\n"};
const char* const scales[] = {"%scale = aten::rsqrt(%shifted)\n%normal = aten::mul(%x, %scale)",
                              "%scale = aten::pow(%shifted, %half)\n%normal = aten::mul(%x, %scale)",
                              "%scale = aten::sqrt(%shifted)\n%normal = aten::div(%x, %scale)"};
const char* const cast_and_weight =
    "\n%cast = aten::to(%normal, %dtype, %blocking, %copy, %format)\n%y = aten::mul(%weight, %cast)";
const char* const weight = "\n%y = aten::mul(%weight, %normal)";

std::vector<Spelling> spellings(std::initializer_list<const char*> ends) {
  std::vector<Spelling> all;
  for (const char* end : ends) {
    for (const char* square : squares) {
      for (const char* scale : scales) all.push_back(spelling(square, scale, end));
    }
  }
  return all;
}

bool run(Context& context) {
  static const std::vector<Spelling> weighted = spellings({cast_and_weight, weight}), plain = spellings({""});
  static const std::vector<Spelling> op{Spelling("%y = aten::rms_norm(%x, %shape, %weight, %eps)")
                                            .declines_unless("weight", is_tensor_or_none, "its weight is not known")
                                            .declines_unless("eps", is_number_or_none, "its eps is not a constant")
                                            .becomes("ipex::rms_norm", build)};
  // The plain ones last: the others hold them.
  const bool changed = rewrite_spellings(context, op) | rewrite_spellings(context, weighted);
  return rewrite_spellings(context, plain) || changed;
}

}  // namespace

Pass fuse_rms_norm() { return {"fuse_rms_norm", run, needs(plain_arithmetic)}; }

}  // namespace ipex::passes
