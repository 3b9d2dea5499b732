// read_known_sizes: the size of what was reshaped is the number that it was reshaped by.
//
//   before   %y = aten::reshape(%x, [%n, %c, 7, 8])    %z = aten::permute(%y, [0, 3, 1, 2])    %s = aten::size(%z, 1)
//   after    .. and %s is 8
//
// So is the size of the last dimension that a layer_norm or a linear gives, where it is the last: how many dimensions a value has is
// told by the reshape or permutation that it comes from. What models divide by their heads, and scale queries by, is a constant then.
// Who asks for a size in between keeps windows that are put together, and cut anew, from becoming one copy.
// A number is known where it is a constant, a size, or a product or quotient of these: -1 stands for any.
// Declines in graphs that change shapes in place, and where a tensor that somebody may write would be made of known numbers
// alone: torch would compute it once and for all.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <unordered_set>
#include <vector>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/exposed_values.h"
#include "ir/graph_walk.h"
#include "ir/ranks.h"
#include "ir/size_list.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// The size of the last dimension, where a layer_norm or a linear makes it so.
std::optional<int64_t> last_size(const Value* value) {
  static const OpName layer_norm("aten::layer_norm"), linear("aten::linear");
  const Node* node = value->node();
  if (layer_norm.is_of(node)) {
    const auto shape = toIValue(node->input(1));
    return shape && shape->isIntList() && shape->toIntList().size() > 0 ? std::optional(shape->toIntVector().back())
                                                                        : std::nullopt;
  }
  const auto weight = linear.is_of(node) ? toIValue(node->input(1)) : std::nullopt;
  const bool is_matrix = weight && weight->isTensor() && weight->toTensor().dim() == 2;
  return is_matrix ? std::optional(weight->toTensor().size(0)) : std::nullopt;
}

// Whether the number, and others that are constants, make a tensor that somebody may write, unseen by torch.
bool makes_exposed_tensor(const Value* number, const ExposedValues& exposed) {
  std::vector<const Value*> left{number};
  std::unordered_set<const Value*> made{number};
  while (!left.empty()) {
    const Value* value = left.back();
    left.pop_back();
    for (const Use& use : value->uses()) {
      const auto inputs = use.user->inputs();
      const bool reads_others = std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) {
        return has_tensor_type(input) && !made.count(input) && !toIValue(input);
      });
      for (const Value* output : use.user->outputs()) {
        if (reads_others || !made.insert(output).second) continue;
        if (has_tensor_type(output) && !exposed.are_seen_by_torch(output)) return true;
        left.push_back(output);
      }
    }
  }
  return false;
}

bool run(Context& context) {
  std::optional<bool> reshapes;
  std::optional<ExposedValues> exposed;
  std::vector<Node*> known_nodes;
  Ranks ranks;
  for_each(context.graph, "aten::size.int", [&](Node* node) {
    const auto dimension = constant_integer(node->input(1));
    if (!dimension) return;
    Value* size = given_size(node->input(0), *dimension);
    const auto last = size ? std::nullopt : last_size(node->input(0));
    const bool is_last = last && (*dimension == -1 || ranks.of(node->input(0)).exact() == *dimension + 1);
    if (!size && !is_last) return;
    if (!reshapes) reshapes = reshapes_in_place(context.graph);
    if (*reshapes) return context.declined(node, "the graph changes shapes in place");
    if (!exposed) exposed.emplace(std::vector<Graph*>{context.graph.get()});
    if ((is_last || constant_integer(size)) && makes_exposed_tensor(node->output(), *exposed)) {
      return context.declined(node, "a tensor that is made of it is returned or overwritten");
    }
    context.applied(node, size ? "is known from what it was reshaped by" : "is known from what gives its dimension");
    const torch::jit::WithInsertPoint guard(node);
    const auto known = size ? constant_integer(size) : last;
    node->output()->replaceAllUsesWith(known ? context.graph->insertConstant(*known) : size);
    known_nodes.push_back(node);
  });
  for (Node* node : known_nodes) node->destroy();
  return !known_nodes.empty();
}

}  // namespace

Pass read_known_sizes() { return {"read_known_sizes", run, needs(lists_are_values, integer_sizes, one_name_per_op)}; }

}  // namespace ipex::passes
