// fuse_gate: a convolution of single pixels multiplies the image by its gate as it reads it, as after squeeze and excitation.
//
//   before   %m = aten::mul(%x, %gate)            the gate is a single pixel
//            %y = ipex::convolution_run(%m, %packed, %operands, False)
//   after    %y = ipex::convolution_run(%x, %packed, %operands, False, [], %gate)
//
// So the product is not written to memory.
// Declines when somebody else reads the product, somebody sees the strides, or the image or the gate is overwritten in between.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "ir/single_pixel.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool reads_single_pixels(const Anchor& anchor) {
  const auto sizes = torch::jit::toIValue(anchor.argument("weight"))->toTensor().sizes();
  return anchor.spatial_rank() == 2 && !anchor.is_transposed() && sizes[2] == 1 && sizes[3] == 1;
}

// The layer that alone reads the product.
std::optional<Anchor> convolution_after(const Node* product) {
  static const OpName convolution("ipex::convolution_run");
  const auto& uses = product->output()->uses();
  if (uses.size() != 1 || !convolution.is_of(uses[0].user)) return std::nullopt;
  const auto anchor = Anchor::producing(uses[0].user->output());
  const bool fits = anchor && anchor->input() == product->output() && reads_single_pixels(*anchor) &&
                    is_false(anchor->run()->input(3)) && anchor->run()->owningBlock() == product->owningBlock();
  return fits ? anchor : std::nullopt;
}

bool fuse(Node* product, Context& context) {
  Value *image = product->input(0), *gate = product->input(1);
  if (is_single_pixel(image)) std::swap(image, gate);
  if (!is_single_pixel(gate) || is_single_pixel(image)) return false;
  const auto layer = convolution_after(product);
  if (!layer || written_between(product, layer->run())) return false;
  Node* run = layer->run();
  context.applied(run, "multiplies by the gate as it reads the image");
  run->replaceInput(0, image);
  set_argument(run, "gate", gate);
  return true;
}

bool run(Context& context) {
  std::vector<Node*> products;
  for_each(context.graph, "aten::mul.Tensor", [&](Node* node) { products.push_back(node); });
  bool changed = false;
  for (Node* product : products) changed |= fuse(product, context);
  return changed;
}

}  // namespace

Pass fuse_gate() { return {"fuse_gate", run, needs(layers_apart, plain_arithmetic)}; }

}  // namespace ipex::passes
