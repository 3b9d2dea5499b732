#include "rearrange/size_source.h"

#include <optional>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/size_list.h"
#include "rearrange/rearranging_step.h"

namespace ipex::passes {
namespace {

// Where a size comes from, through all that hands sizes on: a number that a reshape was given, or a tensor, or the sum of two; and
// what it was padded by.
struct SizeSource {
  Value* tensor = nullptr;
  Value* second = nullptr;
  Value* number = nullptr;
  Value* pads = nullptr;
  int64_t rank = 0;  // where it is known, as with a number
};

// Of a node that asks for a size. None where it can't be told.
std::optional<SizeSource> source_of(const Node* size) {
  static const OpName roll("aten::roll"), pad("aten::pad"), constant_pad("aten::constant_pad_nd"),
      layer_norm("aten::layer_norm"), norm_of_sum("ipex::layer_norm.of_sum");
  const auto dimension = constant_integer(size->input(1));
  if (!dimension) return std::nullopt;
  SizeSource source{const_cast<Value*>(size->input(0))};
  for (;;) {
    Node* node = source.tensor->node();
    const auto step = read_step(node);
    const std::string name = step ? step->name : "";
    if (roll.is_of(node) || name == "contiguous") {
      source.tensor = node->input(0);
    } else if (pad.is_of(node) || constant_pad.is_of(node)) {
      if (source.pads) return std::nullopt;
      source.pads = node->input(1);
      source.tensor = node->input(0);
    } else if (layer_norm.is_of(node)) {
      source.tensor = node->input(0);
      return source;
    } else if (norm_of_sum.is_of(node) && source.tensor == node->output(0)) {
      source.tensor = node->input(0);
      source.second = node->input(1);
      return source;
    } else if (name == "reshape") {
      const auto sizes = elements_of(step->arguments[0].value);
      source.rank = sizes ? std::ssize(*sizes) : 0;
      const int64_t d = *dimension < 0 ? *dimension + source.rank : *dimension;
      if (d < 0 || d >= source.rank || !is_size(sizes->at(static_cast<size_t>(d)))) return std::nullopt;
      source.number = sizes->at(static_cast<size_t>(d));
      return source;
    } else {
      return step || read_step_of_rows(node) ? std::nullopt : std::optional(source);
    }
  }
}

// Inserts the size where `size` asks for it, without what lies between.
Value* insert_size(const SizeSource& source, Node* size) {
  Graph& graph = *size->owningGraph();
  const torch::jit::WithInsertPoint guard(size);
  if (!source.number && !source.second && !source.pads)
    return graph.insert(c10::aten::size, {source.tensor, size->input(1)});
  Value* none = graph.insertConstant(torch::jit::IValue());
  Value* pads = source.pads ? source.pads : graph.insertConstant(std::vector<int64_t>{});
  if (!source.number) {
    return graph.insert(Symbol::fromQualString("ipex::padded_size"),
                        {source.tensor, source.second ? source.second : none, pads, size->input(1)});
  }
  if (!source.pads) return source.number;
  return graph.insert(Symbol::fromQualString("ipex::padded_number"),
                      {source.number, source.rank, pads, size->input(1)});
}

}  // namespace

bool asks_for_known_size(const Use& use) {
  static const OpName size("aten::size.int");
  return size.is_of(use.user) && source_of(use.user);
}

void ask_elsewhere(const Node* node) {
  for (const Use& use : std::vector<Use>(node->output(0)->uses())) {
    if (!asks_for_known_size(use)) continue;
    use.user->output()->replaceAllUsesWith(insert_size(*source_of(use.user), use.user));
    use.user->destroy();
  }
}

}  // namespace ipex::passes
