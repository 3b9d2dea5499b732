// split_ternary: ops of three tensors are two ops of two, which everything else knows.
//
//   before   %y = aten::addcmul(%x, %a, %b, %value)
//   after    %m = aten::mul(%a, %b)
//            %y = aten::add(%x, %m, %value)
//
// addcdiv likewise with div, where its value is 1 and one of the two is known to be floating: it refuses two integers. Packed ops
// take the two as post-ops, chains as steps. lerp stays: it refuses tensors of two dtypes, which two ops would promote. Eager
// multiplies in the dtype that all three promote to: unless one factor is a float32 constant, ipex::in_common_dtype sees to that at
// each call.
// Eager orders the strides of the result by all operands at once. Declines where somebody sees them, unless at most one
// operand has more than one dimension to order. In 16 bits the product is rounded on its own.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/constants.h"
#include "ir/floating.h"
#include "ir/graph_walk.h"
#include "ir/stride_readers.h"
#include "pattern/fusion_rule.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Whether all elements of a constant lie along one dimension.
bool is_vector(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  if (!constant || !constant->isTensor()) return false;
  const auto sizes = constant->toTensor().sizes();
  return std::count_if(sizes.begin(), sizes.end(), [](int64_t size) { return size != 1; }) <= 1;
}

class Splitter {
 public:
  explicit Splitter(Context& context) : context_(context), strides_(context.graph) {}

  bool split(const char* op, int64_t tensors, const std::function<Value*(Node*)>& compute) {
    bool changed = false;
    for_each(context_.graph, op, [&](Node* node) {
      const auto operands = node->inputs().slice(0, static_cast<size_t>(tensors));
      const bool is_ordered = std::count_if(operands.begin(), operands.end(), is_vector) + 1 >= tensors;
      if (!is_ordered && strides_.see(node->output())) {
        return context_.declined(node, "somebody sees its strides, which follow from three tensors");
      }
      const torch::jit::WithInsertPoint guard(node);
      Value* made = compute(node);
      if (!made) return context_.declined(node, "it is not one that two ops compute");
      context_.became(node, "two ops");
      replace(node, made->node());
      changed = true;
    });
    return changed;
  }

 private:
  Context& context_;
  const StrideReaders strides_;
};

// Made by hand: of a schema that fits, graph.insert() takes the first, and a tensor fits a number.
Value* compute(Graph& graph, Symbol op, std::initializer_list<Value*> inputs) {
  return graph.insertNode(graph.create(op, inputs))->output();
}

bool is_float32(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isTensor() && constant->toTensor().dim() > 0 &&
         constant->toTensor().scalar_type() == at::kFloat;
}

// The product or quotient of the second and the third operand.
Value* of_factors(Graph& graph, Symbol op, const Node* node) {
  static const Symbol in_common_dtype = Symbol::fromQualString("ipex::in_common_dtype");
  Node* ternary = const_cast<Node*>(node);
  Value *x = ternary->input(0), *a = ternary->input(1), *b = ternary->input(2);
  if (is_float32(a) || is_float32(b)) return compute(graph, op, {a, b});
  const auto cast = [&](Value* factor) { return compute(graph, in_common_dtype, {factor, x, a, b}); };
  return compute(graph, op, {cast(a), cast(b)});
}

bool run(Context& context) {
  Graph& graph = *context.graph;
  Splitter splitter(context);
  bool changed = splitter.split("aten::addcmul", 3, [&](Node* node) {
    Value* product = of_factors(graph, c10::aten::mul, node);
    return compute(graph, c10::aten::add, {node->input(0), product, node->input(3)});
  });
  changed |= splitter.split("aten::addcdiv", 3, [&](Node* node) -> Value* {
    if (!is_one(node->input(3)) || !(is_floating(node->input(1)) || is_floating(node->input(2)))) return nullptr;
    Value* quotient = of_factors(graph, c10::aten::div, node);
    return compute(graph, c10::aten::add, {node->input(0), quotient, node->input(3)});
  });
  return changed;
}

}  // namespace

Pass split_ternary() { return {"split_ternary", run}; }

}  // namespace ipex::passes
