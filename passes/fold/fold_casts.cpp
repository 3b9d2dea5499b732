// fold_casts: a value that is cast to float32 and back is what it was.
//
//   before   %y = ipex::linear_run(%x, ..)       with a bfloat16 weight
//            %w = aten::to(%y, float32)
//            %p = aten::max_pool2d(%w, ..)
//            %z = aten::to(%p, bfloat16)
//   after    %y = ipex::linear_run(%x, ..)
//            %p = aten::max_pool2d(%y, ..)       %z is %p
//
// The ops between the two casts, if any, are such that give the same in both dtypes: they move elements, or choose among
// them. A cast to the dtype that a value has already is removed as well.
// Another reader of such an op gets its result cast to float32. A cast that is left when a later one undoes it is the same
// case again.
// Declines as a whole where anything is overwritten: the value and its copy would become one. Leaves a pair alone when the
// dtype of the first value is not known, and when the model may return both the value and its copy.
#include <torch/csrc/jit/ir/constants.h>

#include <unordered_set>

#include "aliasing.h"
#include "anchor.h"
#include "casts.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

bool is_16_bit(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

// Whether the op gives the same elements in any floating dtype, for dense tensors dense ones, and its first input, a
// tensor or a list of them, holds all the tensors that it reads.
bool only_moves_or_chooses(const Node* node) {
  static const std::unordered_set<std::string> kinds{
      "aten::relu",      "aten::max_pool1d", "aten::max_pool2d",       "aten::max_pool3d",    "aten::reshape",
      "aten::view",      "aten::flatten",    "aten::transpose",        "aten::permute",       "aten::contiguous",
      "aten::unsqueeze", "aten::squeeze",    "ipex::to_channels_last", "ipex::restore_layout"};
  if (node->outputs().size() != 1) return false;
  if (kind_of(node) == "aten::cat") return node->input(0)->node()->kind() == c10::prim::ListConstruct;
  return kinds.count(kind_of(node)) > 0 && !node->hasNamedInput("dtype");  // view has a form that reads bits anew
}

at::ArrayRef<Value*> tensors_of(Node* node) {
  return kind_of(node) == "aten::cat" ? node->input(0)->node()->inputs() : node->inputs().slice(0, 1);
}

// The dtype that the value has in every call. None when it is not known.
std::optional<at::ScalarType> dtype_of(const Value* value) {
  if (const auto cast = cast_of(value)) return cast->is_unconditional ? std::optional(cast->dtype) : std::nullopt;
  Node* node = const_cast<Node*>(value->node());
  if (const auto anchor = Anchor::producing(value); anchor && anchor->has_weight()) {
    // Around a float32 one, autocast may choose another.
    const at::ScalarType dtype = anchor->dtype();
    const auto has_it = [&](const Value* operand) {
      const auto cast = cast_of(operand);
      return (cast && cast->dtype == dtype) || dtype_of(operand) == dtype;
    };
    const auto& operands = anchor->operands();
    const bool is_sure = is_16_bit(dtype) && std::all_of(operands.begin(), operands.end(), has_it);
    return is_sure ? std::optional(dtype) : std::nullopt;
  }
  if (const auto constant = torch::jit::toIValue(value)) {
    return constant->isTensor() ? std::optional(constant->toTensor().scalar_type()) : std::nullopt;
  }
  if (!only_moves_or_chooses(node)) return std::nullopt;
  std::optional<at::ScalarType> common;
  for (const Value* tensor : tensors_of(node)) {
    const auto own = dtype_of(tensor);
    if (!own || (common && common != own)) return std::nullopt;
    common = own;
  }
  return common;
}

// Whether the value lies in memory without gaps: a copy of it then has its strides.
bool is_dense(const Value* value) {
  if (const auto cast = cast_of(value)) {
    const auto before = dtype_of(cast->source);
    return (before && before != cast->dtype) || is_dense(cast->source);
  }
  if (Anchor::producing(value)) return true;
  Node* node = const_cast<Node*>(value->node());
  if (!only_moves_or_chooses(node)) return false;
  const auto tensors = tensors_of(node);
  return std::all_of(tensors.begin(), tensors.end(), [](const Value* tensor) { return is_dense(tensor); });
}

// Whether the caller may get hold of the tensor, or of a view of it. True where that is not known.
bool escapes(const Value* value) {
  return std::any_of(value->uses().begin(), value->uses().end(), [](const Use& use) {
    const Node* user = use.user;
    const std::string kind = kind_of(user);
    if (kind.starts_with("ipex::") && kind.ends_with("_run")) return false;
    if (user->outputs().size() != 1) return true;
    const Value* result = user->output();
    if (is_fresh(result)) return false;
    if (const auto cast = cast_of(result)) {
      const auto before = dtype_of(cast->source);
      return !(before && before != cast->dtype) && escapes(result);  // to another dtype it is a copy
    }
    const bool hands_on = only_moves_or_chooses(user) || user->kind() == c10::prim::ListConstruct;
    return !hands_on || escapes(result);
  });
}

// Casts from `dtype` to float32, and the values that take their place.
using Leaves = std::vector<std::pair<Value*, Value*>>;

// Whether the float32 value can be computed in `dtype` from the start, with the same elements. Collects its leaves.
bool can_narrow(Value* value, at::ScalarType dtype, const Value* result, Leaves& leaves) {
  if (const auto cast = cast_of(value)) {
    if (cast->dtype != at::kFloat || dtype_of(cast->source) != dtype || !is_dense(cast->source)) return false;
    leaves.emplace_back(value, cast->source);
    return !(escapes(result) && escapes(cast->source));
  }
  Node* node = value->node();
  if (!only_moves_or_chooses(node)) return false;
  if (kind_of(node) == "aten::cat" && node->input(0)->uses().size() != 1) return false;
  const auto tensors = tensors_of(node);
  return std::all_of(tensors.begin(), tensors.end(),
                     [&](Value* tensor) { return can_narrow(tensor, dtype, result, leaves); });
}

// Lets the ops between the leaves and `value` read the leaves' sources. Other readers get float32 as before.
void narrow(Value* value, const Leaves& leaves) {
  Node* node = value->node();
  Node* reader = kind_of(node) == "aten::cat" ? node->input(0)->node() : node;
  for (size_t i = 0; i < (reader == node ? 1 : reader->inputs().size()); ++i) {
    Value* tensor = reader->input(i);
    const auto leaf = std::find_if(leaves.begin(), leaves.end(), [&](const auto& l) { return l.first == tensor; });
    if (leaf == leaves.end()) narrow(tensor, leaves);
    reader->replaceInput(i, leaf == leaves.end() ? tensor : leaf->second);
  }
  value->setType(c10::TensorType::get());  // it may say float32
  const torch::jit::WithInsertPoint guard(node->next());
  Value* widened = node->owningGraph()->insert(Symbol::fromQualString("ipex::restore_precision"), {value});
  widened->node()->setSourceRange(node->sourceRange());
  value->replaceAllUsesAfterNodeWith(widened->node(), widened);
}

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  std::vector<Node*> casts;
  const Node* writer = nullptr;
  for_each_node(graph->block(), [&](Node* node) {
    if (node->outputs().size() == 1 && cast_of(node->output())) casts.push_back(node);
    if (node->blocks().empty() && may_write(node)) writer = node;
  });
  if (casts.empty()) return false;
  if (writer) {
    for (const Node* node : casts) recorder.declined(node, "something is overwritten: " + describe(writer));
    return false;
  }
  bool changed = false;
  for (Node* node : casts) {
    const Cast cast = *cast_of(node->output());
    if (dtype_of(cast.source) == cast.dtype) {
      recorder.applied(node, "removed: its input has that dtype");
      node->output()->replaceAllUsesWith(cast.source);
      changed = true;
      continue;
    }
    Leaves leaves;
    if (!is_16_bit(cast.dtype) || !can_narrow(cast.source, cast.dtype, node->output(), leaves)) continue;
    recorder.applied(node, "removed, with the cast to float32 that it undoes");
    const bool is_pair = leaves.size() == 1 && leaves[0].first == cast.source;
    if (!is_pair) narrow(cast.source, leaves);
    node->output()->replaceAllUsesWith(is_pair ? leaves[0].second : cast.source);
    changed = true;
  }
  return changed;
}

}  // namespace

Pass fold_casts() { return {"fold_casts", run}; }

}  // namespace ipex::passes
