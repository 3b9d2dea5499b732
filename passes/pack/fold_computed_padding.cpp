// fold_computed_padding: zeros that are put around an image just for a convolution, as many as follow from its size, are
// padding that the convolution is told at each call. So is TensorFlow's "same".
//
//   before   %p = aten::pad(%x, %widths, "constant", 0)    %y = ipex::convolution_run(%p, %packed, %operands, %layout)
//   after    %y = ipex::convolution_run(%x, %packed, %operands, %layout, %widths)
//
// Declines when the padding is not zeros; when %p has another reader; when something may write to %x in between, or does
// later; and before transposed convolutions, whose padding cuts off.
#include "anchor/padded_image.h"
#include "ir/pads.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  bool changed = false;
  for (Node* pad : find_pads(context.graph)) {
    const auto anchor = convolution_after(pad);
    if (!anchor) continue;
    if (const auto reason = reason_against_padding(pad, *anchor)) {
      context.declined(pad, *reason);
      continue;
    }
    context.merged(pad, "computed by ", anchor->run());
    pad->output()->replaceAllUsesWith(pad->input(0));
    set_argument(anchor->run(), "widths", pad->namedInput("pad"));
    pad->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace

Pass fold_computed_padding() { return {"fold_computed_padding", run, needs(layers_apart)}; }

}  // namespace ipex::passes
