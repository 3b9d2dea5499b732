// rewrite_channel_mixing: a linear over the few heads of an attention reads and writes the scores as they lie.
//
//   before   %p = aten::permute(%x, [0, 2, 3, 1])
//            %l = aten::linear(%p, %weight, %bias)
//            %y = aten::permute(%l, [0, 3, 1, 2])
//   after    %y = ipex::mix_channels(%x, %weight, %bias)
//
//   before   %y = aten::conv2d(%x, %weight, %bias, ..) of single pixels, where %x is what attention makes of its scores
//   after    %y = ipex::mix_channels(%x, %weight, %bias)
//
// The heads that talk to each other in CaiT and EfficientFormer v2. A linear wants them innermost, a convolution channels-last,
// and the products and the softmax around them want rows of keys: each would copy all scores, for a sum of four numbers.
// Declines when there are many channels, for which a product is worth its copies, and where
// somebody sees the strides of %y, which is contiguous now.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/stride_readers.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

bool is_float_constant(const Value* value) {
  const auto constant = toIValue(value);
  return constant && constant->isTensor() && constant->toTensor().scalar_type() == at::kFloat;
}

// [outputs, inputs], or that of windows of single pixels, which has as many dimensions as its op takes.
bool mixes_few(const Value* weight, size_t dimensions) {
  constexpr int64_t most = 16;
  if (!is_float_constant(weight)) return false;
  const at::IntArrayRef sizes = toIValue(weight)->toTensor().sizes();
  return sizes.size() == dimensions && std::max(sizes[0], sizes[1]) <= most &&
         std::all_of(sizes.begin() + 2, sizes.end(), [](int64_t size) { return size == 1; });
}

bool is_small_matrix(const Value* weight) { return mixes_few(weight, 2); }

bool is_bias(const Value* bias) { return is_none(bias) || is_float_constant(bias); }

Spelling::Condition is_order(std::vector<int64_t> expected) {
  return [expected = std::move(expected)](const Value* order) { return is_list_of(order, expected); };
}

bool rewrite_linears(Context& context) {
  const StrideReaders readers(context.graph);
  constexpr const char* other_order = "it is not the channels of an image that it moves";
  const std::vector<Spelling> spellings{
      Spelling("%p = aten::permute(%x, %to_last)\n"
               "%l = aten::linear(%p, %weight, %bias)\n"
               "%y = aten::permute(%l, %back)")
          .declines_unless("to_last", is_order({0, 2, 3, 1}), other_order)
          .declines_unless("back", is_order({0, 3, 1, 2}), other_order)
          .declines_unless("weight", is_small_matrix, "its weight is not a small constant one of float32")
          .declines_unless("bias", is_bias, "its bias is not a constant one of float32")
          .declines_unless(
              "y", [&](const Value* y) { return !readers.see(y); }, "somebody sees the strides of its result")
          .becomes("ipex::mix_channels", {"x", "weight", "bias"})};
  return rewrite_spellings(context, spellings);
}

// Whether attention makes it of its scores.
bool is_of_scores(const Value* value) {
  static const OpName carriers[] = {OpName("aten::mul"), OpName("aten::div"), OpName("aten::softmax"),
                                    OpName("ipex::mix_channels")};
  static const OpName matmul("aten::matmul"), add("aten::add");
  constexpr int deepest = 8;
  for (int depth = 0; depth < deepest; ++depth) {
    const Node* node = value->node();
    if (matmul.is_of(node)) return true;
    const bool is_second = add.is_of(node) && matmul.is_of(node->input(1)->node());
    const bool carries = is_of_any(carriers, node);
    if (!carries && !add.is_of(node)) return false;
    value = node->input(is_second ? 1 : 0);
  }
  return false;
}

bool is_of_single_pixels(const Node* convolution) {
  const auto is_all = [&](const char* name, int64_t expected) {
    const auto constant = toIValue(convolution->namedInput(name));
    if (!constant || !constant->isIntList()) return false;
    const auto list = constant->toIntVector();
    return std::all_of(list.begin(), list.end(), [&](int64_t value) { return value == expected; });
  };
  const auto groups = constant_integer(convolution->namedInput("groups"));
  return is_all("stride", 1) && is_all("padding", 0) && groups && *groups == 1;
}

bool rewrite_convolutions(Context& context) {
  const StrideReaders readers(context.graph);
  bool changed = false;
  for_each(context.graph, "aten::conv2d", [&](Node* node) {
    Value *x = node->input(0), *weight = node->input(1), *bias = node->input(2);
    if (!is_of_scores(x) || !mixes_few(weight, 4) || !is_bias(bias) || !is_of_single_pixels(node)) return;
    const at::Tensor matrix = toIValue(weight)->toTensor();
    if (matrix.suggest_memory_format() == at::MemoryFormat::ChannelsLast && readers.see(node->output())) {
      return context.declined(node, "its weight makes the result channels-last, and somebody sees the strides");
    }
    const torch::jit::WithInsertPoint guard(node);
    Node* mixed = context.graph->insertNode(
        context.graph->create(Symbol::fromQualString("ipex::mix_channels"), {x, weight, bias}));
    context.became(node, "ipex::mix_channels");
    replace(node, mixed);
    changed = true;
  });
  return changed;
}

bool run(Context& context) {
  const bool linears = rewrite_linears(context);
  return rewrite_convolutions(context) || linears;
}

}  // namespace

Pass rewrite_channel_mixing() {
  return {"rewrite_channel_mixing", run, needs(aten_layers, one_linear_pattern, one_name_per_op)};
}

}  // namespace ipex::passes
