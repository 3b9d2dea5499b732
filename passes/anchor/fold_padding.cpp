// fold_padding: zeros that are put around an image just for a convolution are padding that it can do itself.
//
//   before   %p = aten::constant_pad_nd(%x, [1, 1, 1, 1], 0)    %y = ipex::convolution_run(%p, %packed, ..)
//   after    %y = ipex::convolution_run(%x, %packed', ..)       packed' = packed with the padding added
//
// Declines when the padding is no constant, cuts off, is not zeros, or goes beyond the image; when %p has another
// reader; when something may write to %x in between, or does later: gradients want it as it was; and before transposed
// convolutions, whose padding cuts off.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor/padded_image.h"
#include "ir/pads.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

std::optional<std::string> reason_against_widths(const Node* pad, const Anchor& anchor) {
  const auto widths = toIValue(pad->namedInput("pad"));
  if (!widths) return "its widths are not constants";
  const std::vector<int64_t> list = widths->toIntVector();
  if (static_cast<int64_t>(list.size()) > 2 * anchor.spatial_rank()) return "it pads more than the image";
  if (std::any_of(list.begin(), list.end(), [](int64_t width) { return width < 0; })) return "it cuts off";
  return std::nullopt;
}

void fold(const Node* pad, const Anchor& anchor) {
  const auto rank = static_cast<size_t>(anchor.spatial_rank());
  std::vector<int64_t> padding = toIValue(anchor.argument("padding"))->toIntVector();
  if (padding.size() == rank)
    padding.insert(padding.end(), padding.begin(), padding.begin() + static_cast<std::ptrdiff_t>(rank));
  const std::vector<int64_t> widths = toIValue(pad->namedInput("pad"))->toIntVector();
  for (size_t i = 0; i < widths.size(); ++i) {  // last dimension first, begin and end in turn
    padding[(i % 2) * rank + rank - 1 - i / 2] += widths[i];
  }
  anchor.set_argument("padding", padding);
  anchor.run()->replaceInput(0, pad->input(0));
}

bool run(Context& context) {
  bool changed = false;
  for (Node* pad : find_pads(context.graph)) {
    const auto anchor = convolution_after(pad);
    if (!anchor) continue;
    auto reason = reason_against_widths(pad, *anchor);
    if (!reason) reason = reason_against_padding(pad, *anchor);
    if (reason) {
      context.declined(pad, *reason);
      continue;
    }
    context.merged(pad, "folded into ", anchor->run());
    fold(pad, *anchor);
    pad->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace

Pass fold_padding() { return {"fold_padding", run, needs(anchors_prepacked, full_precision, layers_apart)}; }

}  // namespace ipex::passes
