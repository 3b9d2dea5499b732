// spread_over_concatenation: what follows a concatenation of packed ops' results is done by each of them.
//
//   before   %a = ipex::convolution_run(..)    %b = ipex::convolution_run(..)
//            %c = aten::cat([%a, %b], 1)       %n = aten::batch_norm(%c, ..)    %y = aten::silu(%n)
//   after    %a = ipex::convolution_run(..)    %b = ipex::convolution_run(..)    each with its channels of the batch_norm
//            %s = aten::silu(%a)    %t = aten::silu(%b)    %y = aten::cat([%s, %t], 1)
//
// So in networks whose layers have windows of several sizes side by side, as MixNet, Res2Net's kind and pyramids of
// dilated convolutions. The activations become post-ops later. An image without a batch has other channels for a
// batch_norm than for the convolutions: it is refused then, as where convolutions are summed.
// Declines a batch_norm when something other than plain float32 convolutions is joined, when another dimension than
// channels is, when a statistic is no constant or training is on; and both, when a part, the list or the concatenation has
// another reader.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor/anchor.h"
#include "anchor/batch_norm.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// The parts of a concatenation, all of one dtype, each made by a packed op for nothing else. Empty where they are not.
std::vector<Anchor> parts_of(const Node* reader) {
  static const OpName cat("aten::cat");
  const Node* joined = reader->input(0)->node();
  if (!cat.is_of(joined) || joined->output()->uses().size() != 1) return {};
  const auto joined_parts = own_elements_of(joined->input(0));
  if (!joined_parts) return {};
  std::vector<Anchor> parts;
  for (const Value* part : *joined_parts) {
    const auto anchor = Anchor::producing(part);
    if (!anchor || !anchor->has_weight() || part->uses().size() != 1 || !can_wait(anchor->run(), reader) ||
        (!parts.empty() && anchor->dtype() != parts.front().dtype())) {
      return {};
    }
    parts.push_back(*anchor);
  }
  return parts;
}

std::optional<std::string> reason_against_batch_norm(const Node* node, const std::vector<Anchor>& parts,
                                                     ChannelAffine& affine) {
  if (number(node->input(0)->node()->input(1)) != 1) return "another dimension than channels is joined";
  int64_t channels = 0;
  for (const Anchor& part : parts) {
    if (part.spatial_rank() == 0 || !part.post_ops().empty() || part.dtype() != at::kFloat ||
        !part.argument("folded_scale")->mustBeNone()) {
      return "not all that is joined are plain float32 convolutions";
    }
    channels += part.output_channels();
  }
  if (auto reason = read_batch_norm(node, channels, affine)) return reason;
  int64_t first = 0;
  for (const Anchor& part : parts) {
    if (part.overflows(affine.scale.narrow(0, first, part.output_channels()))) return "a weight would overflow";
    first += part.output_channels();
  }
  return std::nullopt;
}

bool spread_batch_norm(Context& context, Node* node) {
  const std::vector<Anchor> parts = parts_of(node);
  if (parts.empty()) return false;
  ChannelAffine affine;
  if (const auto reason = reason_against_batch_norm(node, parts, affine)) {
    context.declined(node, *reason);
    return false;
  }
  context.applied(node, c10::str("folded into the ", parts.size(), " convolutions that are joined before it"));
  int64_t first = 0;
  for (const Anchor& part : parts) {
    const int64_t channels = part.output_channels();
    part.fold(affine.scale.narrow(0, first, channels), affine.shift.narrow(0, first, channels));
    part.set_argument("needs_batch", true);
    part.set_argument("is_sum", true);  // of one pixel, it has the strides that a batch_norm gives
    first += channels;
  }
  node->output()->replaceAllUsesWith(node->input(0));
  node->destroy();
  return true;
}

// An activation of every element alike, with constant numbers beside.
bool is_activation(const Node* node) {
  const Op* op = op_of(node);
  return op && op->memory == Memory::fresh && op->has(trait::elementwise | trait::keeps_dtype) &&
         node->outputs().size() == 1 &&
         std::all_of(node->inputs().begin() + 1, node->inputs().end(), [](const Value* argument) {
           return toIValue(argument).has_value() && !has_tensor_type(argument);
         });
}

bool spread_activation(Context& context, Node* node) {
  const std::vector<Anchor> parts = parts_of(node);
  if (parts.empty()) return false;
  Node* joined = node->input(0)->node();
  Node* list = joined->input(0)->node();
  const torch::jit::WithInsertPoint guard(list);
  Graph& graph = *node->owningGraph();
  context.applied(node, c10::str("done by the ", parts.size(), " packed ops whose results are joined before it"));
  for (size_t i = 0; i < parts.size(); ++i) {
    Node* own = graph.insertNode(graph.createClone(node, [&](Value* value) {
      return value == node->input(0) ? parts[i].output() : graph.insertConstant(*toIValue(value));
    }));
    own->output()->setType(c10::TensorType::get());
    list->replaceInput(i, own->output());
  }
  node->output()->replaceAllUsesWith(joined->output());
  node->destroy();
  return true;
}

bool run(Context& context) {
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    static const OpName batch_norm("aten::batch_norm");
    if (batch_norm.is_of(node)) {
      changed |= spread_batch_norm(context, node);
    } else if (is_activation(node)) {
      changed |= spread_activation(context, node);
    }
  });
  return changed;
}

}  // namespace

Pass spread_over_concatenation() {
  return {"spread_over_concatenation", run,
          needs(lists_are_values, anchors_prepacked, aten_names, full_precision, layers_apart, one_name_per_op)};
}

}  // namespace ipex::passes
