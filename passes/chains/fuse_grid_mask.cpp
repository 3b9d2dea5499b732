// fuse_grid_mask: a mask that is a sum of rows and columns is added up where attention reads it, and never in memory.
//
//   before   %sum = aten::add(%rows, %columns, %alpha=1)            [.., x, 1] and [.., 1, y], or expanded from them
//            %mask = aten::reshape(%sum, [batch, heads, queries, keys])
//            %y = aten::scaled_dot_product_attention(%q, %k, %v, %mask, ..)
//   after    %sum = ipex::shape_of_sum(%rows, %columns)             no memory
//            %mask = aten::reshape(%sum, ..)
//            %y = ipex::attention_in_a_grid(%q, %k, %v, %mask, %rows, %columns, ..)
//
// So vision transformers learn where a pixel lies to another, height and width apart: SAM, ViTDet, HaloNet, BoTNet. The mask
// of 64 x 64 pixels has 64 MB a head. A step "add" of ipex::attention becomes "add_sides" in the same way.
// Declines where somebody else reads the sum, and where it may be overwritten before attention reads it. Whether the mask is
// what it looks like, each call tells.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

const OpName add("aten::add.Tensor"), scaled_dot_product_attention("aten::scaled_dot_product_attention"),
    attention_of_steps("ipex::attention");

// The elements keep their order in memory.
bool only_reshapes(const Node* node) {
  static const OpName names[] = {
      OpName("aten::view."),   OpName("aten::reshape"),    OpName("aten::flatten.using_ints"),
      OpName("aten::view_as"), OpName("aten::reshape_as"), OpName("aten::unflatten.int")};
  return is_of_any(names, node);
}

bool is_broadcast(const Value* side) {
  static const OpName moves[] = {OpName("aten::slice.Tensor"), OpName("aten::permute"), OpName("aten::transpose.int")};
  static const OpName spreads[] = {OpName("aten::unsqueeze"), OpName("aten::expand")};
  while (is_of_any(moves, side->node())) side = side->node()->input(0);
  return is_of_any(spreads, side->node());
}

bool is_read_once(const Value* value) {
  return std::count_if(value->uses().begin(), value->uses().end(),
                       [](const Use& use) { return !reads_only_sizes(use); }) == 1;
}

// The sum that a mask is, in another shape. Null where it is none.
Node* sum_of(Value* mask) {
  Node* view = mask->node();
  if (!only_reshapes(view)) return nullptr;
  while (only_reshapes(view)) view = view->input(0)->node();
  const bool is_sum =
      add.is_of(view) && number(view->input(2)) == 1 && is_broadcast(view->input(0)) && is_broadcast(view->input(1));
  return is_sum ? view : nullptr;
}

const char* reason_against(Node* sum, const Value* mask, const Node* attention) {
  const Value* value = mask;
  for (const Node* node = mask->node();; node = value->node()) {
    if (node->owningBlock() != attention->owningBlock()) return "its mask is computed in another block";
    if (!is_read_once(value)) return "its mask has another reader";
    if (node == sum) break;
    value = node->input(0);
  }
  const std::vector<Value*> sides{sum->input(0), sum->input(1)};
  for (const Node* node = sum->next(); node != attention; node = node->next()) {
    if (may_write_to(node, sides)) return "something is overwritten before its mask is read";
  }
  return nullptr;
}

// Leaves the shape of the sum. Gives its sides, in any order.
std::pair<Value*, Value*> take_sides(Node* sum) {
  const torch::jit::WithInsertPoint guard(sum);
  Value *rows = sum->input(0), *columns = sum->input(1);
  Graph* graph = sum->owningGraph();
  replace(sum, graph->insertNode(graph->create(Symbol::fromQualString("ipex::shape_of_sum"), {rows, columns})));
  return {rows, columns};
}

// How many operands a step of ipex::attention takes.
size_t operands_of(std::string step) {
  if (step.ends_with('_')) step.pop_back();
  if (step == "add_sides") return 3;
  if (step == "masked_fill_tensor" || step == "where_tensor") return 2;
  const char* takers[] = {"mul", "div", "add", "baddbmm", "masked_fill", "where"};
  return static_cast<size_t>(std::count(std::begin(takers), std::end(takers), step));
}

void fuse_into_op(Node* attention) {
  Value* mask = attention->input(3);
  const auto [rows, columns] = take_sides(sum_of(mask));
  Graph* graph = attention->owningGraph();
  const torch::jit::WithInsertPoint guard(attention);
  std::vector<Value*> inputs = attention->inputs().vec();
  inputs.insert(inputs.begin() + 4, {rows, columns});
  inputs.push_back(graph->insertConstant(torch::jit::IValue()));  // the math mode
  replace(attention, graph->insertNode(graph->create(Symbol::fromQualString("ipex::attention_in_a_grid"), inputs)));
}

bool fuse_into_steps(Context& context, Node* attention) {
  const auto steps = toIValue(attention->input(3));
  Node* list = attention->input(4)->node();
  if (!steps || !elements_of(attention->input(4))) return false;
  c10::List<std::string> names;
  std::vector<Value*> operands;
  size_t next = 0;
  bool changed = false;
  for (const torch::jit::IValue& step : steps->toListRef()) {
    const size_t count = operands_of(step.toStringRef());
    const auto given = list->inputs().slice(next, count);
    next += count;
    operands.insert(operands.end(), given.begin(), given.end());
    names.push_back(step.toStringRef());
    Node* sum = step.toStringRef() == "add" ? sum_of(given[0]) : nullptr;
    if (!sum || changed) continue;
    if (const char* reason = reason_against(sum, given[0], attention)) {
      context.declined(attention, reason);
      continue;
    }
    const auto [rows, columns] = take_sides(sum);
    operands.insert(operands.end(), {rows, columns});
    names.set(names.size() - 1, "add_sides");
    changed = true;
  }
  if (!changed) return false;
  Graph* graph = attention->owningGraph();
  const torch::jit::WithInsertPoint guard(attention);
  attention->replaceInput(3, graph->insertConstant(names));
  attention->replaceInput(4, graph->insertNode(graph->createList(c10::TensorType::get(), operands))->output());
  return true;
}

bool run(Context& context) {
  constexpr const char* fused = "adds up its mask itself";
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (scaled_dot_product_attention.is_of(node)) {
      Node* sum = sum_of(node->input(3));
      if (!sum) return;
      if (const char* reason = reason_against(sum, node->input(3), node)) return context.declined(node, reason);
      context.applied(node, fused);
      fuse_into_op(node);
      changed = true;
    } else if (attention_of_steps.is_of(node) && fuse_into_steps(context, node)) {
      context.applied(node, fused);
      changed = true;
    }
  });
  return changed;
}

}  // namespace

Pass fuse_grid_mask() {
  return {"fuse_grid_mask", run, needs(lists_are_values, aten_names, plain_arithmetic, plain_views)};
}

}  // namespace ipex::passes
