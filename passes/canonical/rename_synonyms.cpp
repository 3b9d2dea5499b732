// rename_synonyms: torch.concat and torch.concatenate are torch.cat, swapaxes and swapdims are transpose.
//
//   before   %y = aten::concat(%tensors, %dim)     %z = aten::swapaxes(%x, %a, %b)
//   after    %y = aten::cat(%tensors, %dim)        %z = aten::transpose(%x, %a, %b)
//
// torch gives other ops with several names one name when it traces; these it leaves. No pass knows them by theirs: a
// convolution before one would lose its layout, and alias analysis believes that a concatenation may keep what it reads.
//
//   before   %y = aten::_convolution(%x, %weight, .., %transposed=1, ..)     the strides are two numbers
//   after    %y = aten::conv_transpose2d(%x, %weight, ..)
//
// A trace has convolutions under this name alone, which autocast on CPUs does not know: it left a computed weight in bfloat16
// beside an image in float32. Reported as nothing: the model's author called it so. Can't be disabled, as no pass knows the others.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/graph_walk.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// How many dimensions its windows have; one number of a list may stand for all of them. None where that is known only at each call.
std::optional<size_t> rank_of(const Node* convolution) {
  size_t rank = 0;
  for (const char* list : {"stride", "padding", "dilation", "output_padding"}) {
    const auto numbers = toIValue(convolution->namedInput(list));
    if (!numbers || !numbers->isIntList()) return std::nullopt;
    rank = std::max(rank, numbers->toIntList().size());
  }
  return rank >= 1 && rank <= 3 ? std::optional(rank) : std::nullopt;
}

bool name_convolutions(Context& context) {
  static const std::vector<const char*> plain{"input", "weight", "bias", "stride", "padding", "dilation", "groups"},
      transposed{"input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"};
  bool changed = false;
  for_each(context.graph, "aten::_convolution", [&](Node* node) {
    const auto rank = rank_of(node);
    const auto is_transposed = toIValue(node->namedInput("transposed"));
    if (!rank || !is_transposed) return;
    std::vector<Value*> inputs;
    for (const char* argument : is_transposed->toBool() ? transposed : plain) {
      inputs.push_back(node->namedInput(argument));
    }
    const std::string name = c10::str("aten::conv", is_transposed->toBool() ? "_transpose" : "", *rank, "d");
    const torch::jit::WithInsertPoint guard(node);
    replace(node, context.graph->insertNode(context.graph->create(Symbol::fromQualString(name), inputs)));
    changed = true;
  });
  return changed;
}

bool run(Context& context) {
  const auto same = [](const char* ir, const char* op, const std::vector<std::string>& values) {
    return Spelling(ir).becomes(op, values).keeps_gradient();
  };
  static const std::vector<Spelling> spellings{
      same("%y = aten::concat(%tensors, %dim)", "aten::cat", {"tensors", "dim"}),
      same("%y = aten::concatenate(%tensors, %dim)", "aten::cat", {"tensors", "dim"}),
      same("%y = aten::swapaxes(%x, %a, %b)", "aten::transpose", {"x", "a", "b"}),
      same("%y = aten::swapdims(%x, %a, %b)", "aten::transpose", {"x", "a", "b"})};
  return rewrite_spellings(context, spellings) | name_convolutions(context);
}

}  // namespace

Pass rename_synonyms() {
  return {"rename_synonyms", run, establishes(one_name_per_op), /*reasons_stay=*/false, /*is_needed=*/true};
}

}  // namespace ipex::passes
