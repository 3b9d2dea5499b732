// read_known_sizes: the size of what was reshaped is the number that it was reshaped by.
//
//   before   %y = aten::reshape(%x, [%n, %c, 7, 8])    %z = aten::permute(%y, [0, 3, 1, 2])    %s = aten::size(%z, 1)
//   after    .. and %s is 8
//
// Who asks for a size in between keeps windows that are put together, and cut anew, from becoming one copy.
// A number is known where it is a constant, a size, or a product or quotient of these: -1 stands for any.
// Declines in graphs that change shapes in place.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "aliasing.h"
#include "constants.h"
#include "graph_walk.h"
#include "passes.h"
#include "size_list.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// Where the size of dimension `d` of `value` was given. Null where it was not.
Value* given_size(Value* value, int64_t d) {
  static const OpName by_sizes[] = {OpName("aten::reshape"), OpName("aten::view."), OpName("aten::expand")};
  for (std::optional<int64_t> rank;;) {
    Node* node = value->node();
    const auto is_of = [&](const OpName& name) { return name.is_of(node); };
    if (std::any_of(std::begin(by_sizes), std::end(by_sizes), is_of)) {
      const auto sizes = sizes_in(node->input(1));
      const auto count = sizes ? static_cast<int64_t>(sizes->size()) : 0;
      if (d < 0) d += count;
      if (d < 0 || d >= count || (rank && *rank != count)) return nullptr;
      Value* size = sizes->at(static_cast<size_t>(d));
      return is_size(size) ? size : nullptr;
    }
    if (node->kind() == c10::aten::transpose) {
      const auto a = constant_integer(node->input(1)), b = constant_integer(node->input(2));
      const bool count_alike = a && b && (*a < 0) == (*b < 0) && (*a < 0) == (d < 0);
      if (!count_alike) return nullptr;
      d = d == *a ? *b : d == *b ? *a : d;
      value = node->input(0);
      continue;
    }
    const auto order = node->kind() == c10::aten::permute ? toIValue(node->input(1)) : std::nullopt;
    if (!order) return nullptr;
    const std::vector<int64_t> dims = order->toIntVector();
    rank = static_cast<int64_t>(dims.size());
    if (d < 0) d += *rank;
    if (d < 0 || d >= *rank) return nullptr;
    d = dims[static_cast<size_t>(d)];
    value = node->input(0);
  }
}

bool run(Context& context) {
  std::optional<bool> reshapes;
  bool changed = false;
  for_each(context.graph, "aten::size.int", [&](Node* node) {
    const auto dimension = constant_integer(node->input(1));
    Value* size = dimension ? given_size(node->input(0), *dimension) : nullptr;
    if (!size) return;
    if (!reshapes) reshapes = reshapes_in_place(context.graph);
    if (*reshapes) return context.declined(node, "the graph changes shapes in place");
    context.applied(node, "is known from what it was reshaped by");
    const torch::jit::WithInsertPoint guard(node);
    const auto known = constant_integer(size);
    node->output()->replaceAllUsesWith(known ? context.graph->insertConstant(*known) : size);
    node->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass read_known_sizes() { return {"read_known_sizes", run}; }

}  // namespace ipex::passes
