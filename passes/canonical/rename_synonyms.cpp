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
// A trace has convolutions under this name alone, which autocast on CPUs does not know: one whose weight is computed met a
// weight of bfloat16 and an image of float32. One whose weight is a constant is prepacked.
#include <torch/csrc/jit/ir/constants.h>

#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

bool is_computed(const Value* weight) { return !toIValue(weight); }

bool is_constant(const Value* value) { return toIValue(value).has_value(); }

size_t rank_of(const Value* stride) {
  const auto constant = toIValue(stride);
  return constant && constant->isIntList() ? constant->toIntList().size() : 0;
}

bool has_a_rank(const Value* stride) { return rank_of(stride) >= 1 && rank_of(stride) <= 3; }

Node* by_its_name(const Match& match) {
  const bool is_transposed = toIValue(match["transposed"])->toBool();
  const std::string op = is_transposed ? "aten::conv_transpose" : "aten::conv";
  std::vector<Value*> inputs;
  for (const char* name : {"x", "weight", "bias", "stride", "padding"}) inputs.push_back(match[name]);
  if (is_transposed) {
    for (const char* name : {"output_padding", "groups", "dilation"}) inputs.push_back(match[name]);
  } else {
    for (const char* name : {"dilation", "groups"}) inputs.push_back(match[name]);
  }
  Graph* graph = match.last()->owningGraph();
  const auto kind = Symbol::fromQualString(op + std::to_string(rank_of(match["stride"])) + "d");
  return graph->insertNode(graph->create(kind, inputs));
}

Spelling convolution(const std::string& line) {
  return Spelling(line)
      .declines_unless("weight", is_computed, "")
      .declines_unless("stride", has_a_rank, "")
      .declines_unless("transposed", is_constant, "")
      .becomes("the convolution of its rank", by_its_name);
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      convolution("%y = aten::_convolution(%x, %weight, %bias, %stride, %padding, %dilation, %transposed, "
                  "%output_padding, %groups, %benchmark, %deterministic, %cudnn, %tf32)"),
      convolution("%y = aten::_convolution.deprecated(%x, %weight, %bias, %stride, %padding, %dilation, %transposed, "
                  "%output_padding, %groups, %benchmark, %deterministic, %cudnn)"),
      Spelling("%y = aten::concat(%tensors, %dim)").becomes("aten::cat", {"tensors", "dim"}),
      Spelling("%y = aten::concatenate(%tensors, %dim)").becomes("aten::cat", {"tensors", "dim"}),
      Spelling("%y = aten::swapaxes(%x, %a, %b)").becomes("aten::transpose", {"x", "a", "b"}),
      Spelling("%y = aten::swapdims(%x, %a, %b)").becomes("aten::transpose", {"x", "a", "b"})};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass rename_synonyms() { return {"rename_synonyms", run, establishes(one_name_per_op)}; }

}  // namespace ipex::passes
