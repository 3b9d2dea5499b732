// move_arithmetic: arithmetic with the permuted result of a linear becomes arithmetic with the result itself, so that the
// packed op can take it over.
//
//   before   %y = aten::linear(..)    %p = aten::permute(%y, [0, 3, 1, 2])    %z = aten::add(%p, %residual, 1)
//   after    %y = aten::linear(..)    %r = aten::permute(%residual, [0, 2, 3, 1])    %s = aten::add(%y, %r, 1)
//            %z = aten::permute(%s, [0, 3, 1, 2])
//
// Blocks of ConvNeXt's kind are written so: a convolution, linears over the channels, which lie last for them, and back to
// where the image came from, by a scale for each channel and a sum. The scale then goes into the weight. A residual that
// was moved itself, as that of the block before, is read as it was: permutations that undo each other are none.
// Declines when somebody else reads %y or %p, in graphs that change shapes in place, when the other operand is neither a
// constant for each channel nor known to have as many dimensions, and where somebody sees strides (stride_readers.h): of
// dimensions of one element they may be others.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <numeric>
#include <unordered_set>

#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "ir/ranks.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using Dims = std::vector<int64_t>;

const OpName& permute() {
  static const OpName name("aten::permute");
  return name;
}

bool is_arithmetic(const Node* node) {
  static const OpName names[] = {OpName("aten::add.Tensor"),  OpName("aten::add_.Tensor"), OpName("aten::sub.Tensor"),
                                 OpName("aten::sub_.Tensor"), OpName("aten::mul.Tensor"),  OpName("aten::mul_.Tensor"),
                                 OpName("aten::div.Tensor"),  OpName("aten::div_.Tensor")};
  return is_of_any(names, node);
}

// Where each dimension of a permutation comes from. Empty for other nodes, and where it is no constant.
Dims dims_of(const Node* node) {
  if (!permute().is_of(node)) return {};
  const auto constant = toIValue(node->input(1));
  if (!constant || !constant->isIntList()) return {};
  Dims dims = constant->toIntVector();
  for (int64_t& dim : dims) dim += dim < 0 ? static_cast<int64_t>(dims.size()) : 0;
  return dims;
}

Dims inverse(const Dims& dims) {
  Dims back(dims.size());
  for (size_t i = 0; i < dims.size(); ++i) back[static_cast<size_t>(dims[i])] = static_cast<int64_t>(i);
  return back;
}

// How many dimensions a value has, if it gets as far as `node`: by what it is made of, or a permutation before reads it
// or the image that a convolution makes of it. 0 where that is not known.
size_t rank_before(const Value* value, const Node* node) {
  constexpr int furthest = 8;
  if (const auto rank = Ranks(furthest).of(value).exact()) return static_cast<size_t>(*rank);
  for (const Use& use : value->uses()) {
    if (use.offset != 0 || use.user->owningBlock() != node->owningBlock() || !use.user->isBefore(node)) continue;
    if (const Dims dims = dims_of(use.user); !dims.empty()) return dims.size();
    const size_t rank = has_trait(use.user, trait::convolves) ? rank_before(use.user->output(), node) : 0;
    if (rank > 0) return rank;
  }
  return 0;
}

// A constant that is spread over all dimensions but the one that these make of the last, as what it is for that one.
std::optional<at::Tensor> along_last(const Value* value, const Dims& dims) {
  const auto constant = toIValue(value);
  if (!constant || !constant->isTensor()) return std::nullopt;
  const at::Tensor tensor = constant->toTensor();
  if (tensor.dim() == 0) return tensor;
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t last = inverse(dims).back() - (rank - tensor.dim());
  const bool is_for_it = tensor.dim() <= rank && last >= 0 && tensor.numel() == tensor.size(last);
  return is_for_it ? std::optional(tensor.reshape({-1})) : std::nullopt;
}

class Mover {
 public:
  explicit Mover(Context& context) : context_(context), stride_readers_(context.graph) {}

  void look_at(Node* node) {
    static const OpName linear("aten::linear");
    if (linear.is_of(node)) of_linears_.insert(node->output());
    if (!is_arithmetic(node)) return;
    std::string reason;
    for (const size_t i : {0, 1}) {
      Node* permutation = node->input(i)->node();
      const bool writes_to_other = i == 1 && op_of(node)->memory == Memory::itself;
      if (of_linears_.count(node->input(i)) && toIValue(node->input(1 - i))) of_linears_.insert(node->output());
      if (writes_to_other || dims_of(permutation).empty() || !of_linears_.count(permutation->input(0))) continue;
      reason = move(node, i, permutation);
      if (reason.empty()) return;
    }
    if (!reason.empty()) context_.declined(node, reason);
  }

  bool changed() const { return changed_; }

 private:
  // Why it can't be. Empty when it was.
  std::string move(Node* node, size_t i, Node* permutation) {
    const Dims dims = dims_of(permutation);
    Value* y = permutation->input(0);
    if (permutation->owningBlock() != node->owningBlock() || y->node()->owningBlock() != node->owningBlock()) {
      return "it is not always computed";
    }
    if (permutation->output()->uses().size() != 1) return "its input has another reader";
    if (y->uses().size() != 1) return "what it is a view of has another reader";
    Value* other = node->input(1 - i);
    const auto constant = along_last(other, dims);
    if (!constant && rank_before(other, node) != dims.size()) return "the rank of the other operand is not known";
    if (stride_readers_.see(node->output())) return "the strides of a result depend on it";
    context_.merged(node, "moved before ", permutation);
    Graph* graph = context_.graph.get();
    const torch::jit::WithInsertPoint guard(node);
    const bool is_number = constant && constant->dim() == 0;
    Value* moved = is_number ? other : constant ? graph->insertConstant(*constant) : undone(other, dims);
    Node* arithmetic = graph->insertNode(graph->createClone(node, [&](Value* v) {
      return v == node->input(i) ? y : v == other ? moved : v;
    }));
    arithmetic->output()->setType(c10::TensorType::get());
    of_linears_.insert(arithmetic->output());
    replace(node, graph->insert(c10::aten::permute, {arithmetic->output(), dims})->node());
    changed_ = true;
    return "";
  }

  // What these permute to `value`.
  Value* undone(Value* value, const Dims& dims) {
    if (dims_of(value->node()) == dims) return value->node()->input(0);
    return context_.graph->insert(c10::aten::permute, {value, inverse(dims)});
  }

  Context& context_;
  const StrideReaders stride_readers_;           // of the graph as it came
  std::unordered_set<const Value*> of_linears_;  // what linears compute, and arithmetic with it
  bool changed_ = false;
};

bool run(Context& context) {
  if (reshapes_in_place(context.graph)) return false;
  Mover mover(context);
  for_each_node(context.graph->block(), [&](Node* node) { mover.look_at(node); });
  return mover.changed();
}

}  // namespace

Pass move_arithmetic() { return {"move_arithmetic", run, needs(lists_are_values, aten_layers, one_linear_pattern)}; }

}  // namespace ipex::passes
