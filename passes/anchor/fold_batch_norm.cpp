// fold_batch_norm: in eval mode batch_norm is a scale and a shift per channel, which the packed op's weight can absorb.
//
//   before   %y = ipex::convolution_run(%x, %packed, ..)
//            %z = aten::batch_norm(%y, %gamma, %beta, %mean, %var, %training=0, ..)
//   after    %z = ipex::convolution_run(%x, %packed', ..)
//            weight' = weight * s    bias' = (bias - mean) * s + beta    s = gamma / sqrt(var + eps)
//
// The channel of batch_norm is dimension 1, the packed op's is the one before the image (convolution) or the last
// (linear): the same one only for inputs of one rank. The packed op is told what was folded, and undoes it for an input
// of another rank.
// A 16-bit weight is rounded once more, as it is by torch.jit.freeze; in return %y is not rounded between the two.
// Declines when %y has another reader, when a statistic is no constant, when training is on, or when the weight would
// overflow.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "anchor/batch_norm.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// The channels by whose scale nothing can be divided. The runtime has the same limit, and throws where it counts others
// (packed/packed_op.h).
at::Tensor vanishing_channels(const at::Tensor& scale) {
  constexpr double least_scale = 1e-20;
  return scale.to(at::kFloat).abs().lt(least_scale).nonzero().flatten();
}

// The packed op divides by the scale when it takes the batch_norm out again. Where it can't, it needs what was there: a row
// for each such channel, the weight and then the bias.
at::Tensor vanished(const Anchor& anchor, const at::Tensor& channels) {
  const at::Tensor weight = toIValue(anchor.argument("weight"))->toTensor();
  const auto bias = toIValue(anchor.argument("bias"));
  const at::Tensor rows = weight.index_select(0, channels).reshape({channels.numel(), -1}).to(at::kFloat);
  const at::Tensor biases = bias->isTensor() ? bias->toTensor().index_select(0, channels).to(at::kFloat)
                                             : at::zeros({channels.numel()}, at::kFloat);
  return at::cat({rows, biases.unsqueeze(1)}, 1);
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "aten::batch_norm", [&](Node* node) {
    const auto anchor = Anchor::producing(node->input(0));
    if (!anchor || !anchor->has_weight() || anchor->run()->owningBlock() != node->owningBlock()) {
      return context.declined(node, "its input does not come from a packed op");
    }
    if (!anchor->post_ops().empty()) return context.declined(node, "another operation comes in between");
    if (anchor->output()->uses().size() != 1) return context.declined(node, "its input has another reader");
    if (!anchor->argument("folded_scale")->mustBeNone())
      return context.declined(node, "a batch_norm is folded already");
    ChannelAffine affine;
    if (const auto reason = read_batch_norm(node, anchor->output_channels(), affine))
      return context.declined(node, *reason);
    if (anchor->overflows(affine.scale)) return context.declined(node, "the weight would overflow in its dtype");

    const at::Tensor gone = vanishing_channels(affine.scale);
    if (gone.numel() > 0 && anchor->is_transposed()) {
      return context.declined(node, "a channel of a transposed convolution vanishes: it could not be unfolded");
    }
    context.merged(node, "folded into ", anchor->run());
    if (gone.numel() > 0) anchor->set_argument("vanished", vanished(*anchor, gone));
    anchor->fold(affine.scale, affine.shift);
    anchor->set_argument("folded_scale", affine.scale.to(at::kFloat));
    anchor->set_argument("folded_shift", affine.shift.to(at::kFloat));
    anchor->take_over(node);
    changed = true;
  });
  return changed;
}

}  // namespace

Pass fold_batch_norm() { return {"fold_batch_norm", run, needs(anchors_prepacked, full_precision, layers_apart)}; }

}  // namespace ipex::passes
