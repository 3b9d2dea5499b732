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
// Another reader of such an op gets its result cast to float32. Removing a cast can expose another pair: the pass runs
// again.
// Declines as a whole where anything is overwritten: the value and its copy would become one. Leaves a pair alone when the
// dtype of the first value is not known, and when the model may return both the value and its copy.
#include <torch/csrc/jit/ir/constants.h>

#include <unordered_map>
#include <unordered_set>

#include "anchor/anchor.h"
#include "ir/aliasing.h"
#include "ir/casts.h"
#include "ir/escape.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_16_bit(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

bool joins_a_list(const Node* node) { return has_trait(node, trait::joins); }

// Whether the op gives the same elements in any floating dtype, and nothing else is computed along with them.
bool only_moves_or_chooses(const Node* node) {
  return has_trait(node, trait::chooses) && node->outputs().size() == 1 &&
         (!joins_a_list(node) || elements_of(node->input(0)));
}

// The node that has the tensors of such an op as its inputs.
Node* reader_of_tensors(Node* node) { return joins_a_list(node) ? node->input(0)->node() : node; }

at::ArrayRef<Value*> tensors_of(Node* node) {
  return joins_a_list(node) ? node->input(0)->node()->inputs() : node->inputs().slice(0, 1);
}

// Attention whose result has the dtype that query, key and value have, and no gaps.
bool keeps_16_bits(Node* node) {
  if (node->kind() == c10::aten::scaled_dot_product_attention) return true;
  if (node->kind() != Symbol::fromQualString("ipex::attention")) return false;
  return torch::jit::toIValue(node->input(3))->toListRef().front().toStringRef() == "of_16_bits";
}

// What is known of values, each worked out once: values that meet again after a branch would else be asked for twice as
// often at each such place.
class Facts {
 public:
  Facts() : escapes_([this](const Node* node) { return is_copy(node); }) {}
  Facts(const Facts&) = delete;

  // The dtype that the value has in every call. None when it is not known.
  std::optional<at::ScalarType> dtype_of(const Value* value) {
    if (const auto known = dtypes_.find(value); known != dtypes_.end()) return known->second;
    const auto dtype = work_out_dtype(value);
    dtypes_.emplace(value, dtype);
    return dtype;
  }

  // Whether the value lies in memory without gaps: a copy of it then has its strides.
  bool is_dense(const Value* value) {
    if (const auto known = dense_.find(value); known != dense_.end()) return known->second;
    const bool dense = work_out_dense(value);
    dense_.emplace(value, dense);
    return dense;
  }

  // Whether somebody may get hold of the tensor, or of a view of it.
  bool escapes(const Value* value) { return escapes_.contain(value); }

 private:
  std::optional<at::ScalarType> work_out_dtype(const Value* value) {
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
    if (keeps_16_bits(node)) return common_dtype(node->inputs().slice(0, 3));
    return only_moves_or_chooses(node) ? common_dtype(tensors_of(node)) : std::nullopt;
  }

  std::optional<at::ScalarType> common_dtype(at::ArrayRef<Value*> tensors) {
    std::optional<at::ScalarType> common;
    for (const Value* tensor : tensors) {
      const auto own = dtype_of(tensor);
      if (!own || (common && common != own)) return std::nullopt;
      common = own;
    }
    return common;
  }

  bool work_out_dense(const Value* value) {
    if (const auto cast = cast_of(value)) {
      const auto before = dtype_of(cast->source);
      return (before && before != cast->dtype) || is_dense(cast->source);
    }
    if (Anchor::producing(value)) return true;
    Node* node = const_cast<Node*>(value->node());
    if (keeps_16_bits(node)) return true;
    if (!only_moves_or_chooses(node)) return false;
    const auto tensors = tensors_of(node);
    return std::all_of(tensors.begin(), tensors.end(), [&](const Value* tensor) { return is_dense(tensor); });
  }

  // A cast to another dtype.
  bool is_copy(const Node* node) {
    const auto cast = node->outputs().size() == 1 ? cast_of(node->output()) : std::nullopt;
    const auto before = cast ? dtype_of(cast->source) : std::nullopt;
    return before && before != cast->dtype;
  }

  std::unordered_map<const Value*, std::optional<at::ScalarType>> dtypes_;
  std::unordered_map<const Value*, bool> dense_;
  Escapes escapes_;
};

// Float32 values that can be computed in another dtype from the start, with the same elements: ops that only move or
// choose, down to casts from that dtype.
struct Region {
  std::unordered_map<const Value*, Value*> leaves;  // each cast, and the value that it casts
  std::unordered_set<const Value*> known;
  std::vector<Value*> inner;  // what the ops in between compute

  bool is_pair() const { return inner.empty(); }
};

// Whether there is such a region that ends in `value`. `result` is the cast back.
bool find_region(Value* value, at::ScalarType dtype, const Value* result, Facts& facts, Region& region) {
  if (!region.known.insert(value).second) return true;
  if (const auto cast = cast_of(value)) {
    if (cast->dtype != at::kFloat || facts.dtype_of(cast->source) != dtype || !facts.is_dense(cast->source)) {
      return false;
    }
    region.leaves.emplace(value, cast->source);
    return !(facts.escapes(result) && facts.escapes(cast->source));
  }
  Node* node = value->node();
  if (!only_moves_or_chooses(node) || (joins_a_list(node) && node->input(0)->uses().size() != 1)) return false;
  const auto tensors = tensors_of(node);
  if (!std::all_of(tensors.begin(), tensors.end(),
                   [&](Value* tensor) { return find_region(tensor, dtype, result, facts, region); })) {
    return false;
  }
  region.inner.push_back(value);
  return true;
}

// Lets the region read what its casts cast. Other readers of its values get float32 as before.
void narrow(const Region& region) {
  std::unordered_set<const Node*> readers;
  for (Value* value : region.inner) {
    Node* reader = reader_of_tensors(value->node());
    readers.insert(reader);
    for (size_t i = 0; i < reader->inputs().size(); ++i) {
      const auto leaf = region.leaves.find(reader->input(i));
      if (leaf != region.leaves.end()) reader->replaceInput(i, leaf->second);
    }
  }
  for (Value* value : region.inner) {
    Node* node = value->node();
    value->setType(c10::TensorType::get());  // it may say float32
    const torch::jit::WithInsertPoint guard(node->next());
    const std::vector<Use> uses = value->uses();
    Value* widened = node->owningGraph()->insert(Symbol::fromQualString("ipex::restore_precision"), {value});
    widened->node()->setSourceRange(node->sourceRange());
    for (const Use& use : uses) {
      if (!readers.count(use.user)) use.user->replaceInput(use.offset, widened);
    }
  }
}

bool run(Context& context) {
  std::vector<Node*> casts;
  const Node* writer = nullptr;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (node->outputs().size() == 1 && cast_of(node->output())) casts.push_back(node);
    if (node->blocks().empty() && may_write(node)) writer = node;
  });
  if (casts.empty()) return false;
  if (writer) {
    for (const Node* node : casts) context.declined(node, "something is overwritten: " + describe(writer));
    return false;
  }
  bool changed = false;
  std::optional<Facts> facts(std::in_place);
  for (Node* node : casts) {
    const Cast cast = *cast_of(node->output());
    if (facts->dtype_of(cast.source) == cast.dtype) {
      context.applied(node, "removed: its input has that dtype");
      node->output()->replaceAllUsesWith(cast.source);
    } else {
      Region region;
      if (!is_16_bit(cast.dtype) || !find_region(cast.source, cast.dtype, node->output(), *facts, region)) continue;
      context.applied(node, "removed, with the cast to float32 that it undoes");
      narrow(region);
      node->output()->replaceAllUsesWith(region.is_pair() ? region.leaves.begin()->second : cast.source);
    }
    facts.emplace();
    changed = true;
  }
  return changed;
}

}  // namespace

Pass fold_casts() { return {"fold_casts", run, needs(lists_are_values)}; }

}  // namespace ipex::passes
