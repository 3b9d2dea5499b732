// simplify_sizes: arithmetic on sizes that tracing recorded with tensors is done with integers.
//
//   before   %t = prim::NumToTensor(%size)    %q = aten::floor_divide(%t, {7})    %n = aten::Int(%q)
//   after    %n = aten::floordiv(%size, 7)
//
// A traced size is a tensor without dimensions, and so is all that is computed from it; each op on it costs about a
// microsecond. Models that cut images into windows have hundreds of them, as Swin has, and so has padding that follows
// from the size of the image. ceil(a / b) is one of the operations, which float32 computes exactly up to sizes of 2^22.
// Declines where the arithmetic is another than that of integers, and where such a tensor may be overwritten.
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <unordered_map>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

class Integers {
 public:
  Integers(Graph& graph, const torch::jit::AliasDb& aliases) : graph_(graph), aliases_(aliases) {}

  // The integer that this tensor without dimensions holds, computed where the tensor is. Null where it is not known to be
  // one.
  Value* in(Value* tensor) {
    const auto known = known_.find(tensor);
    if (known != known_.end()) return known->second;
    Value* found = aliases_.hasWriters(tensor) ? nullptr : find(tensor);
    return known_[tensor] = found;
  }

 private:
  Value* find(Value* tensor) {
    static const OpName from_number("prim::NumToTensor.Scalar");
    Node* node = tensor->node();
    if (const auto constant = torch::jit::toIValue(tensor)) {
      const bool is_one = constant->isTensor() && constant->toTensor().dim() == 0 &&
                          constant->toTensor().scalar_type() == at::kLong && constant->toTensor().device().is_cpu();
      const torch::jit::WithInsertPoint guard(node->next());
      return is_one ? graph_.insertConstant(constant->toTensor().item<int64_t>()) : nullptr;
    }
    if (from_number.is_of(node)) return integer(node->input());
    return compute(node);
  }

  // The same of an operand, which may be a number as well.
  Value* operand(Value* value) {
    return value->type()->isSubtypeOf(*c10::TensorType::get()) ? in(value) : integer(value);
  }

  static Value* integer(Value* value) { return value->type()->isSubtypeOf(*c10::IntType::get()) ? value : nullptr; }

  Value* insert(Node* node, Symbol op, std::initializer_list<Value*> inputs) {
    Node* made = graph_.insertNode(graph_.create(op, inputs));
    made->output()->setType(c10::IntType::get());
    made->setSourceRange(node->sourceRange());
    made->setScope(node->scope());
    return made->output();
  }

  // ceil(a / b) = (a + b - 1) // b, of a positive constant b.
  Value* ceil_divide(Node* node) {
    static const OpName div("aten::div.Tensor"), div_number("aten::div.Scalar");
    Node* quotient = node->input()->node();
    if (!div.is_of(quotient) && !div_number.is_of(quotient)) return nullptr;
    const torch::jit::WithInsertPoint guard(node);
    Value *a = operand(quotient->input(0)), *b = operand(quotient->input(1));
    const auto divisor = b ? torch::jit::toIValue(b) : std::nullopt;
    if (!a || !divisor || divisor->toInt() < 1) return nullptr;
    Value* sum = insert(node, c10::aten::add, {a, graph_.insertConstant(divisor->toInt() - 1)});
    return insert(node, c10::aten::floordiv, {sum, b});
  }

  // clamp(a, min), without a maximum.
  Value* clamp(Node* node) {
    const auto least = torch::jit::toIValue(node->input(1));
    if (!least || !least->isInt() || !node->input(2)->mustBeNone()) return nullptr;
    const torch::jit::WithInsertPoint guard(node);
    Value* a = in(node->input(0));
    static const Symbol max = Symbol::fromQualString("prim::max");
    return a ? insert(node, max, {a, node->input(1)}) : nullptr;
  }

  Value* compute(Node* node) {
    static const OpName ceil("aten::ceil"), clamps("aten::clamp");
    if (ceil.is_of(node)) return ceil_divide(node);
    if (clamps.is_of(node)) return clamp(node);
    struct Arithmetic {
      OpName of_tensors;
      Symbol of_integers;
      bool has_alpha = false, reversed = false;
    };
    static const Arithmetic all[] = {
        {OpName("aten::add"), c10::aten::add, true},         {OpName("aten::sub"), c10::aten::sub, true},
        {OpName("aten::rsub"), c10::aten::sub, true, true},  {OpName("aten::mul"), c10::aten::mul},
        {OpName("aten::floor_divide"), c10::aten::floordiv}, {OpName("aten::remainder"), c10::aten::remainder}};
    for (const Arithmetic& one : all) {
      if (!one.of_tensors.is_of(node)) continue;
      const auto alpha = one.has_alpha ? torch::jit::toIValue(node->input(2)) : std::optional<torch::jit::IValue>(1);
      if (!alpha || !alpha->isInt() || alpha->toInt() != 1) return nullptr;
      const torch::jit::WithInsertPoint guard(node);
      Value* a = operand(node->input(0));
      Value* b = operand(node->input(1));
      if (!a || !b) return nullptr;
      if (one.reversed) std::swap(a, b);
      return insert(node, one.of_integers, {a, b});
    }
    return nullptr;
  }

  Graph& graph_;
  const torch::jit::AliasDb& aliases_;
  std::unordered_map<const Value*, Value*> known_;
};

bool run(Context& context) {
  static const OpName to_integer("aten::Int.Tensor");
  std::vector<Node*> ends;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (to_integer.is_of(node)) ends.push_back(node);
  });
  if (ends.empty()) return false;
  const torch::jit::AliasDb aliases(context.graph);
  Integers integers(*context.graph, aliases);
  bool changed = false;
  for (Node* end : ends) {
    const torch::jit::WithInsertPoint guard(end);
    Value* integer = integers.in(end->input());
    if (!integer) continue;
    end->output()->replaceAllUsesWith(integer);
    changed = true;
  }
  return changed;
}

}  // namespace

Pass simplify_sizes() { return {"simplify_sizes", run, establishes(integer_sizes)}; }

}  // namespace ipex::passes
