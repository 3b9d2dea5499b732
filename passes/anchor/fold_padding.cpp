// fold_padding: zeros that are put around an image just for a convolution are padding that it can do itself.
//
//   before   %p = aten::constant_pad_nd(%x, [1, 1, 1, 1], 0)    %y = ipex::convolution_run(%p, %packed, ..)
//   after    %y = ipex::convolution_run(%x, %packed', ..)       packed' = packed with the padding added
//
// Declines when the padding is no constant, cuts off, is not zeros, or goes beyond the image; when %p has another
// reader; when something may write to %x in between, or does later: gradients want it as it was; and before transposed
// convolutions, whose padding cuts off.
//
// fold_computed_padding: the same of padding that follows from the size of the image, as TensorFlow's "same" does. The
// convolution is told at each call. Runs at the end: up to then pad and convolution are what every pass knows.
//
//   before   %p = aten::pad(%x, %widths, "constant", 0)    %y = ipex::convolution_run(%p, %packed, %operands, %layout)
//   after    %y = ipex::padded_convolution_run(%x, %packed, %operands, %layout, %widths)
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "ir/aliasing.h"
#include "ir/constants.h"
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

std::optional<std::string> reason_against(const Node* pad, const Anchor& anchor) {
  if (pad->output()->uses().size() != 1) return "another reader needs the padded image";
  if (pad->hasNamedInput("mode") && toIValue(pad->namedInput("mode")) != torch::jit::IValue("constant")) {
    return "it does not pad with zeros";
  }
  const Value* value = pad->namedInput("value");
  if (!value->mustBeNone() && number(value) != 0) return "it does not pad with zeros";
  if (anchor.is_transposed()) return "the convolution is transposed";
  if (pad->owningBlock() != anchor.run()->owningBlock()) return "the convolution is in another block";
  if (written_between(pad, anchor.run())) return "something is overwritten in between";
  const auto& readers = pad->input(0)->uses();
  if (std::any_of(readers.begin(), readers.end(), overwrites)) return "what it pads is overwritten";
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

// The convolution that reads what the node pads, or reads it channels-last.
std::optional<Anchor> convolution_after(const Node* pad) {
  static const OpName convert("ipex::to_channels_last");
  const Value* image = pad->output();
  const auto reader = [&] { return image->uses().empty() ? nullptr : image->uses()[0].user; };
  if (image->uses().size() == 1 && convert.is_of(reader()) && reader()->output()->uses().size() == 1) {
    image = reader()->output();
  }
  if (!reader() || reader()->outputs().size() != 1) return std::nullopt;
  const auto anchor = Anchor::producing(reader()->output());
  return anchor && anchor->input() == image && anchor->spatial_rank() > 0 ? anchor : std::nullopt;
}

template <typename Visit>
void for_each_pad(Context& context, Visit&& visit) {
  for (Node* pad : find_pads(context.graph)) {
    if (const auto anchor = convolution_after(pad)) visit(pad, *anchor);
  }
}

bool run(Context& context) {
  bool changed = false;
  for_each_pad(context, [&](Node* pad, const Anchor& anchor) {
    auto reason = reason_against_widths(pad, anchor);
    if (!reason) reason = reason_against(pad, anchor);
    if (reason) return context.declined(pad, *reason);
    context.applied(pad, "folded into " + describe(anchor.run()));
    fold(pad, anchor);
    pad->destroy();
    changed = true;
  });
  return changed;
}

bool run_computed(Context& context) {
  bool changed = false;
  for_each_pad(context, [&](Node* pad, const Anchor& anchor) {
    if (const auto reason = reason_against(pad, anchor)) return context.declined(pad, *reason);
    context.applied(pad, "computed by " + describe(anchor.run()));
    pad->output()->replaceAllUsesWith(pad->input(0));
    std::vector<Value*> inputs = anchor.run()->inputs().vec();
    inputs.push_back(pad->namedInput("pad"));
    const torch::jit::WithInsertPoint guard(anchor.run());
    static const Symbol padded = Symbol::fromQualString("ipex::padded_convolution_run");
    replace(anchor.run(), context.graph->insertNode(context.graph->create(padded, inputs)));
    pad->destroy();
    changed = true;
  });
  return changed;
}

}  // namespace

Pass fold_padding() { return {"fold_padding", run}; }
Pass fold_computed_padding() { return {"fold_computed_padding", run_computed}; }

}  // namespace ipex::passes
