// fold_convolution_sums: convolutions of one image that are added up are one convolution, by the sum of their weights.
//
//   before   %a = ipex::convolution_run(%x, %packed_a, ..)      3x3, padding 1
//            %b = ipex::convolution_run(%x, %packed_b, ..)      1x1, with a batch_norm folded in
//            %c = aten::batch_norm(%x, ..)
//            %y = aten::add(%a, %b)    %z = aten::add(%y, %c)
//   after    %z = ipex::convolution_run(%x, %packed, ..)        weight = weight_a + weight_b in its middle + scale_c
//
// So look RepVGG, MobileOne, FastViT, RepViT, PP-LCNet and the necks of RT-DETR and D-FINE after training. Works for
// differences as well, and in place. A smaller window goes where its pixels lie in the larger one's. A batch_norm of the
// image is a window of one pixel that leaves channels apart; so is the image itself, which joins depthwise convolutions
// only: for others an epilogue is as good, and rounds nothing.
// Declines when an addend has another reader, when neither window holds the other, when something is overwritten in
// between, where the weight has 16 bits, as the sum would be rounded, and where somebody sees the strides of a sum that
// would have others in eager. A batch_norm does not join the weight of a model that is quantised, where its large numbers
// on the diagonal would leave few of the 8 bits to the others.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "anchor/batch_norm.h"
#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "ir/stride_readers.h"
#include "ir/unseen_write.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using Ints = std::vector<int64_t>;

// What an addend computes of the image: a window of weights for each pair of channels.
struct Window {
  at::Tensor weight, bias;  // float64; the bias is undefined where there is none
  Ints stride, begin, end, dilation;
  int64_t groups = 1;
  bool widens = false;
  bool is_sum = false;       // its result has the strides of an op on a convolution's
  bool needs_batch = false;  // a batch_norm was folded, whose channels are others in an image without a batch
  bool adds_input = false;   // itself, or a batch_norm of it

  size_t rank() const { return stride.size(); }
  int64_t size(size_t i) const { return weight.size(static_cast<int64_t>(i) + 2); }
  // By how much the result is smaller than the image, in front and behind, before the stride.
  int64_t shrinks(size_t i) const { return dilation[i] * (size(i) - 1) - begin[i] - end[i]; }
};

Window window_of(const Anchor& anchor) {
  const auto ints = [&](const char* name) { return toIValue(anchor.argument(name))->toIntVector(); };
  const auto bias = toIValue(anchor.argument("bias"));
  Window window{
      .weight = toIValue(anchor.argument("weight"))->toTensor().to(at::kDouble),
      .bias = bias->isTensor() ? bias->toTensor().to(at::kDouble) : at::Tensor(),
      .stride = ints("stride"),
      .begin = ints("padding"),
      .end = {},
      .dilation = ints("dilation"),
      .groups = toIValue(anchor.argument("groups"))->toInt(),
      .widens = toIValue(anchor.argument("widens"))->toBool(),
      .is_sum = toIValue(anchor.argument("is_sum"))->toBool() || !anchor.argument("folded_scale")->mustBeNone(),
      .needs_batch =
          toIValue(anchor.argument("needs_batch"))->toBool() || !anchor.argument("folded_scale")->mustBeNone(),
      .adds_input = toIValue(anchor.argument("adds_input"))->toBool()};
  const auto rank = static_cast<std::ptrdiff_t>(window.rank());
  window.end.assign(window.begin.end() - rank, window.begin.end());
  window.begin.resize(window.rank());
  return window;
}

// One pixel that multiplies each channel by its scale, for an image that a convolution like `other` keeps in its size.
Window pixel_like(const Window& other, const at::Tensor& scale) {
  const int64_t outputs = other.weight.size(0), inputs = other.weight.size(1);
  Ints sizes(other.rank() + 2, 1);
  sizes[0] = outputs;
  sizes[1] = inputs;
  Window window{.weight = at::zeros({outputs, inputs}, at::kDouble),
                .bias = {},
                .stride = Ints(other.rank(), 1),
                .begin = Ints(other.rank(), 0),
                .end = Ints(other.rank(), 0),
                .dilation = Ints(other.rank(), 1),
                .groups = other.groups,
                .is_sum = true,
                .adds_input = true};
  window.weight.scatter_(1, at::arange(outputs).remainder(inputs).unsqueeze(1), scale.unsqueeze(1));
  window.weight = window.weight.view(sizes);
  return window;
}

// Where the pixels of `inner` begin in the window of `outer`. None where they are not all there, or where the results have
// different sizes.
std::optional<Ints> place_in(const Window& outer, const Window& inner) {
  if (outer.stride != inner.stride || outer.groups != inner.groups ||
      outer.weight.sizes().slice(0, 2) != inner.weight.sizes().slice(0, 2)) {
    return std::nullopt;
  }
  Ints place;
  for (size_t i = 0; i < outer.rank(); ++i) {
    const int64_t distance = outer.begin[i] - inner.begin[i], step = outer.dilation[i];
    const bool same_steps = inner.size(i) == 1 || inner.dilation[i] == step;
    if (!same_steps || distance < 0 || distance % step != 0 || distance / step + inner.size(i) > outer.size(i) ||
        outer.shrinks(i) != inner.shrinks(i)) {
      return std::nullopt;
    }
    place.push_back(distance / step);
  }
  return place;
}

// Adds `inner` to `outer`.
void add(Window& outer, const Window& inner, const Ints& place) {
  at::Tensor middle = outer.weight;
  for (size_t i = 0; i < place.size(); ++i) {
    middle = middle.narrow(static_cast<int64_t>(i) + 2, place[i], inner.size(i));
  }
  middle.add_(inner.weight);
  if (inner.bias.defined()) outer.bias = outer.bias.defined() ? outer.bias + inner.bias : inner.bias;
  outer.widens |= inner.widens;
  outer.needs_batch |= inner.needs_batch;
  outer.adds_input |= inner.adds_input;
}

void negate(Window& window) {
  window.weight.neg_();
  if (window.bias.defined()) window.bias = -window.bias;
}

// A convolution whose sum with something may be one: no post-op has come in between.
std::optional<Anchor> convolution_of(const Value* value, const Node* sum) {
  const auto anchor = Anchor::producing(value);
  const bool is_plain = anchor && anchor->spatial_rank() > 0 && !anchor->is_transposed() &&
                        anchor->post_ops().empty() && anchor->run()->owningBlock() == sum->owningBlock();
  return is_plain ? anchor : std::nullopt;
}

// Both addends of a node that adds or subtracts, where one at least is a convolution.
struct Sum {
  Node* node;
  std::optional<Anchor> anchors[2];

  const Value* addend(size_t i) const { return node->input(i); }
  bool is_in_place() const { return op_of(node)->memory == Memory::itself; }
  bool subtracts() const { return kind_of(node).starts_with("aten::sub"); }
  const Anchor& anchor() const { return anchors[0] ? *anchors[0] : *anchors[1]; }
  Value* image() const { return anchor().input(); }
  bool is_of_one_image() const {
    for (size_t i = 0; i < 2; ++i) {
      const Node* maker = addend(i)->node();
      static const OpName batch_norm("aten::batch_norm");
      const bool is_its_own = anchors[i]
                                  ? anchors[i]->input() == image()
                                  : addend(i) == image() || (batch_norm.is_of(maker) && maker->input(0) == image());
      if (!is_its_own) return false;
    }
    return true;
  }
};

class Folding {
 public:
  explicit Folding(Context& context) : context_(context), readers_(context.graph) {}

  bool fold(const Sum& sum) {
    Window windows[2];
    if (const auto reason = reason_against(sum)) return decline(sum, *reason);
    for (size_t i = 0; i < 2; ++i) {
      if (sum.anchors[i]) windows[i] = window_of(*sum.anchors[i]);
    }
    for (size_t i = 0; i < 2; ++i) {
      if (sum.anchors[i]) continue;
      if (const auto reason = read_pixel(sum, i, windows[1 - i], windows[i])) return decline(sum, *reason);
    }
    if (readers_.see(sum.node->output())) {
      if (const auto reason = reason_against_strides(sum)) return decline(sum, *reason);
    }
    if (sum.subtracts()) negate(windows[1]);
    if (sum.is_in_place()) windows[1].widens = windows[1].adds_input = false;  // it keeps the dtype of the first addend
    for (size_t outer = 0; outer < 2; ++outer) {
      const auto place = place_in(windows[outer], windows[1 - outer]);
      if (!place || !sum.anchors[outer]) continue;
      add(windows[outer], windows[1 - outer], *place);
      windows[outer].is_sum = !sum.is_in_place() || windows[0].is_sum;
      if (!windows[outer].weight.to(at::kFloat).isfinite().all().item<bool>()) {
        return decline(sum, "the sum of the weights is not finite");
      }
      rewrite(sum, outer, windows[outer]);
      return true;
    }
    return decline(sum, "neither window holds the other");
  }

 private:
  bool decline(const Sum& sum, const std::string& reason) {
    context_.declined(sum.node, reason);
    return false;
  }

  std::optional<std::string> reason_against(const Sum& sum) const {
    if (number(sum.node->input(2)) != 1) return "alpha is not 1";
    if (sum.is_in_place()) {
      if (sum.addend(0) == sum.image()) return "it overwrites the image";
      if (const auto reason = reason_against_separating(sum.node)) return reason;
    }
    const Node* first = sum.node;
    for (size_t i = 0; i < 2; ++i) {
      if (sum.addend(i) == sum.image()) continue;
      if (sum.addend(i)->uses().size() != 1) return "another reader needs one of the addends";
      const Node* maker = sum.addend(i)->node();
      if (maker->owningBlock() != sum.node->owningBlock()) return "an addend is computed in another block";
      if (maker->isBefore(first)) first = maker;
    }
    for (const auto& anchor : sum.anchors) {
      if (anchor && anchor->dtype() != at::kFloat) return "a 16-bit weight would be rounded once more";
    }
    if (written_between(first, sum.node)) return "something is overwritten in between";
    return std::nullopt;
  }

  // Convolutions of one image have results of one layout, and so has their sum. So has a batch_norm of the image, unless it is
  // the weights that make results channels-last. In 3-d aten chooses for each convolution.
  std::optional<std::string> reason_against_strides(const Sum& sum) const {
    if (sum.anchor().spatial_rank() == 3) return "somebody sees its strides, which are aten's to choose in 3-d";
    if (sum.addend(0) == sum.image() || sum.addend(1) == sum.image()) return "somebody sees its strides: the image's";
    const auto format_of = [](const std::optional<Anchor>& anchor) {
      return anchor ? toIValue(anchor->argument("weight"))->toTensor().suggest_memory_format()
                    : at::MemoryFormat::Contiguous;
    };
    if (format_of(sum.anchors[0]) != format_of(sum.anchors[1]))
      return "somebody sees its strides: of one addend's weight";
    return std::nullopt;
  }

  // The window of an addend that is the image, or a batch_norm of it.
  std::optional<std::string> read_pixel(const Sum& sum, size_t i, const Window& other, Window& window) const {
    const Value* addend = sum.addend(i);
    const int64_t outputs = other.weight.size(0), inputs = other.weight.size(1) * other.groups;
    if (outputs != inputs) return "the convolution has not as many channels as the image";
    ChannelAffine affine{at::ones({outputs}, at::kDouble), at::Tensor()};
    const bool is_normalized = addend != sum.image();
    if (is_normalized) {
      if (const auto reason = read_batch_norm(addend->node(), outputs, affine)) return reason;
      if (context_.options.quantization && other.weight.size(1) > 1) return "it would leave few bits to other weights";
    } else if (other.weight.size(1) > 1) {
      return "the convolution is not depthwise";
    }
    window = pixel_like(other, affine.scale);
    window.bias = affine.shift;
    window.needs_batch = is_normalized;
    return std::nullopt;
  }

  void rewrite(const Sum& sum, size_t outer, const Window& window) {
    const Anchor& anchor = *sum.anchors[outer];
    const Node* other = sum.addend(1 - outer)->node();
    if (sum.addend(1 - outer) != sum.image()) context_.merged(other, "folded into ", anchor.run());
    context_.merged(sum.node, "folded into ", anchor.run());
    const auto format = toIValue(anchor.argument("weight"))->toTensor().suggest_memory_format();
    anchor.set_argument("weight", window.weight.to(at::kFloat).contiguous(format));
    anchor.set_argument("bias",
                        window.bias.defined() ? torch::jit::IValue(window.bias.to(at::kFloat)) : torch::jit::IValue());
    for (const char* name : {"folded_scale", "folded_shift", "vanished"})
      anchor.set_argument(name, torch::jit::IValue());
    anchor.set_argument("widens", window.widens);
    anchor.set_argument("is_sum", window.is_sum);
    anchor.set_argument("needs_batch", window.needs_batch);
    anchor.set_argument("adds_input", window.adds_input);
    anchor.take_over(sum.node);
  }

  Context& context_;
  const StrideReaders readers_;
};

bool run(Context& context) {
  std::optional<Folding> folding;
  bool changed = false;
  for (const char* kind : {"aten::add", "aten::add_", "aten::sub", "aten::sub_"}) {
    for_each(context.graph, kind, [&](Node* node) {
      if (node->inputs().size() != 3 || !has_tensor_type(node->input(0)) || !has_tensor_type(node->input(1))) return;
      const Sum sum{node, {convolution_of(node->input(0), node), convolution_of(node->input(1), node)}};
      if ((!sum.anchors[0] && !sum.anchors[1]) || !sum.is_of_one_image()) return;
      if (!folding) folding.emplace(context);
      changed |= folding->fold(sum);
    });
  }
  return changed;
}

}  // namespace

Pass fold_convolution_sums() {
  return {"fold_convolution_sums", run, needs(anchors_prepacked, eager_layouts, full_precision, layers_apart)};
}

}  // namespace ipex::passes
