// Convolutions with packed weights: 1-, 2- and 3-d, and transposed.
//
//   ipex::convolution_prepack(weight, bias, stride, padding, dilation, groups, transposed, output_padding, post_ops,
//                             folded_scale, folded_shift, math_mode, vanished, widens, needs_batch,
//                             is_sum, adds_input) -> ConvolutionContext
//   ipex::convolution_run(input, context, operands, eager_layout, widths=[], gate=None) -> Tensor
//     `gate`: of input * gate, as squeeze and excitation multiplies the channels of an image
//     `widths`: of that after constant_pad_nd, where padding follows from the size of the image, as TensorFlow's "same"
//
// `padding` has a number per dimension or, where the two ends differ, the beginnings followed by the ends. A 1-d
// convolution is computed as the 2-d one that aten makes of it, on an image one pixel high.
// Computes on channels-last activations, where oneDNN's brgemm kernels are fastest; an input in another layout is
// converted first, but for an image of few channels, which a kernel of our own reads in any layout.
#include "ops/convolution/convolution.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "memory/result_memory.h"
#include "packed/damaged.h"
#include "packed/dead_operand.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using Ints = std::vector<int64_t>;

constexpr const char* op_name = "ipex::convolution_run";

// What the layout of a weight depends on, beside the weight.
Ints numbers_of(const ConvolutionGeometry& geometry) {
  Ints numbers{geometry.spatial_rank, geometry.groups, geometry.transposed};
  for (const Ints* list :
       {&geometry.stride, &geometry.begin, &geometry.end, &geometry.dilation, &geometry.output_padding}) {
    numbers.insert(numbers.end(), list->begin(), list->end());
  }
  return numbers;
}

}  // namespace

ConvolutionContext::ConvolutionContext(const Spec& spec, ConvolutionGeometry geometry)
    : PackedOp(spec, static_cast<int64_t>(geometry.stride.size()) + 2,
               output_channels(spec.weight, geometry.checked(op_name)), numbers_of(geometry)),
      geometry_(std::move(geometry)),
      channels_last_(channels_last_of(geometry_.spatial_rank)),
      steps_(post_ops()) {
  TORCH_CHECK(spec.weight.size(0) % geometry_.groups == 0, op_name, ": expected channels divisible by groups, got ",
              spec.weight.size(0), " and ", geometry_.groups, damaged);
}

ConvolutionContext::ConvolutionContext(const ConvolutionContext& other, ConvolutionGeometry geometry)
    : PackedOp(other), geometry_(std::move(geometry)), channels_last_(other.channels_last_), steps_(post_ops()) {}

Tensor ConvolutionContext::run_padded(const Tensor& input, const std::vector<Tensor>& operands, bool eager_layout,
                                      at::IntArrayRef widths) const {
  if (std::all_of(widths.begin(), widths.end(), [](int64_t width) { return width == 0; })) {
    return run(input, operands, eager_layout);
  }
  if (!geometry_.can_pad(widths)) return run(at::constant_pad_nd(input, widths), operands, eager_layout);
  const auto padded = with_padding_.get(
      PrimitiveKey(widths), [&] { return c10::make_intrusive<ConvolutionContext>(*this, geometry_.padded(widths)); });
  return (*padded)->run(input, operands, eager_layout);
}

Tensor ConvolutionContext::Call::image_in_pixels() const {
  return lies_in_pixels(image) ? image : channels_last_result(image, layer.channels_last_);
}

Tensor ConvolutionContext::run_own_kernel(const Tensor& input, const std::vector<Tensor>& operands, bool may_accumulate,
                                          bool eager_layout, size_t& done) const {
  Call call{*this, input, operands, may_accumulate, eager_layout};
  const Tensor result = run_first(op_name, algorithms(), call);
  done = call.done;
  return result;
}

std::array<const ConvolutionContext::Algorithm*, 8> ConvolutionContext::algorithms() {
  return {&trimmed_taps, &pixel_product, &sequence_product, &depthwise,
          &few_channels, &winograd,      &rounded_windows,  &by_onednn<Call>};
}

Tensor ConvolutionContext::compute(Call& call, c10::function_ref<bool(const ElementwiseSteps&, const Tensor&)> kernel,
                                   bool may_accumulate) const {
  KernelCall own;
  begin(own, call.input, call.operands, call.eager_layout);
  const auto format = at::MemoryFormat::ChannelsLast;
  const bool accumulates = may_accumulate && adds_in_place(own.fused, call.operands.front());
  const Tensor result = accumulates ? in_memory_of(call.operands.front(), call.result_sizes, format)
                                    : empty_result(call.result_sizes, call.image.options().memory_format(format));
  if (!kernel(own.steps, result)) return {};
  call.done = own.fused.count;
  return user_view(result, call.input, call.eager_layout);
}

State ConvolutionContext::state() const {
  Integers integers = geometry_.integers();
  if (geometry_.pads_image) integers["pads_image"] = {1};
  return save(spec(), integers);
}

c10::intrusive_ptr<ConvolutionContext> ConvolutionContext::load(const State& state) {
  const StateReader reader(op_name, state);
  ConvolutionGeometry geometry = ConvolutionGeometry::load(op_name, reader);
  geometry.pads_image = std::get<2>(state).contains("pads_image");
  return c10::make_intrusive<ConvolutionContext>(reader.spec(), std::move(geometry));
}

void ConvolutionContext::check_that_layers_fit(const char* name,
                                               const std::vector<c10::intrusive_ptr<ConvolutionContext>>& layers) {
  for (size_t i = 1; i < layers.size(); ++i) {
    const int64_t made = layers[i - 1]->output_channels(), taken = layers[i]->input_channels();
    TORCH_CHECK(made == taken, name, ": expected layers that fit together, got one of ", made,
                " channels before one for ", taken, damaged);
  }
}

int64_t ConvolutionContext::output_channels(const Tensor& weight, const ConvolutionGeometry& geometry) {
  if (!weight.defined() || weight.dim() < 2) return 0;  // refused by PackedOp
  return geometry.output_channels(weight.sizes());
}

void ConvolutionContext::check_input(const Tensor& input) const {
  geometry_.check_image(op_name, input, weight_sizes());
}

bool ConvolutionContext::accepts(const Tensor& input, bool eager_layout) const {
  const bool fits = input.dim() == batch_rank() && input.size(1) == input_channels();
  return fits && !reason_for_aten(input, eager_layout);
}

bool ConvolutionContext::begin(KernelCall& call, const Tensor& input, const std::vector<Tensor>& operands,
                               bool eager_layout) const {
  check_operands(operands);
  call.fused = fuse_into_result(input, operands, eager_layout, KernelSteps::applies);
  call.steps = steps_.of_call(call.fused, bias(), output_channels(), call.room);
  return call.fused.count == post_ops().size();
}

const char* ConvolutionContext::reason_against_own_kernels() const {
  if (geometry_.spatial_rank > 2) return "it is of volumes";
  if (dtype() != at::kFloat) return "its weight is not float32";
  if (geometry_.transposed) return "it is transposed";
  return steps_.has_all() ? nullptr : "no kernel of ours has all post-ops that oneDNN has";
}

const Panels* ConvolutionContext::panels() const {
  if (!blocked_weight()) return nullptr;
  const std::optional<Panels>& panels = blocked_weight()->panels();
  return panels && can_multiply(*panels) ? &*panels : nullptr;
}

Tensor ConvolutionContext::divided(const Tensor& weight, const Tensor& divisor) const {
  if (!geometry_.transposed) {
    Ints shape(weight.dim(), 1);
    shape[0] = -1;
    return weight / divisor.view(shape);
  }
  Ints shape(weight.dim() + 1, 1), grouped = weight.sizes().vec();
  shape[0] = geometry_.groups;
  shape[2] = weight.size(1);
  grouped[0] /= geometry_.groups;
  grouped.insert(grouped.begin(), geometry_.groups);
  return (weight.reshape(grouped) / divisor.view(shape)).reshape(weight.sizes());
}

Tensor ConvolutionContext::allocate(const Tensor& source) const {
  return empty_result(kernel_result_sizes(source.sizes()), source.options().memory_format(channels_last_));
}

Tensor ConvolutionContext::user_view(const Tensor& result, const Tensor& input, bool eager_layout) const {
  const Tensor laid_out = eager_layout ? with_format(result, format_of_result(result, input)) : result;
  return as_original_image(laid_out, input, geometry_.spatial_rank);
}

bool ConvolutionContext::laid_out_as_result(const Tensor& tensor, const Tensor& input, bool eager_layout) const {
  return batched(tensor).is_contiguous(eager_layout ? eager_format(input) : channels_last_);
}

const char* ConvolutionContext::own_reason_for_aten(const Tensor& input, bool eager_layout) const {
  const bool keeps_layout =
      eager_layout && geometry_.spatial_rank == 3 && eager_format(input) != at::MemoryFormat::Contiguous;
  if (const char* reason = geometry_.reason_for_aten(keeps_layout)) return reason;
  if (is_brgemm_at_fault(input) && taps_to_keep(input).empty())
    return "in this corner oneDNN's kernels read what they should not";
  return nullptr;
}

at::MemoryFormat ConvolutionContext::eager_format(const Tensor& input) const {
  // In 1-d aten makes all contiguous. A sequence of a single place is, too, when its strides are those of channels-last.
  if (geometry_.spatial_rank == 1 && !input.is_contiguous()) return at::MemoryFormat::Contiguous;
  Tensor seen = batched(input);
  if (geometry_.begin != geometry_.end) {  // what it convolves then is a padded copy
    seen = padded(at::empty_strided(seen.sizes(), seen.strides(), seen.options().device(at::kMeta)));
  }
  const bool is_channels_last = weight_format() == channels_last_ || seen.suggest_memory_format() == channels_last_;
  return is_channels_last ? channels_last_ : at::MemoryFormat::Contiguous;
}

at::MemoryFormat ConvolutionContext::format_of_result(const Tensor& result, const Tensor& input) const {
  const bool is_both = (!post_ops().empty() || follows_anchor()) && result.is_contiguous();
  return is_both ? at::MemoryFormat::Contiguous : eager_format(input);
}

namespace {

c10::intrusive_ptr<ConvolutionContext> convolution_prepack(
    const Tensor& weight, const std::optional<Tensor>& bias, Ints stride, Ints padding, Ints dilation, int64_t groups,
    bool transposed, Ints output_padding, std::vector<std::string> post_ops, const std::optional<Tensor>& folded_scale,
    const std::optional<Tensor>& folded_shift, std::optional<int64_t> math_mode, const std::optional<Tensor>& vanished,
    bool widens, bool needs_batch, bool is_sum, bool adds_input) {
  ConvolutionGeometry geometry =
      ConvolutionGeometry::of("ipex::convolution_prepack", weight, std::move(stride), std::move(padding),
                              std::move(dilation), groups, transposed, std::move(output_padding));
  const Spec spec{op_name,
                  weight.dim() == 3 ? weight.unsqueeze(2) : weight,
                  bias.value_or(Tensor()),
                  std::move(post_ops),
                  folded_scale.value_or(Tensor()),
                  folded_shift.value_or(Tensor()),
                  pinned_math_mode(op_name, math_mode),
                  vanished.value_or(Tensor()),
                  widens,
                  needs_batch,
                  is_sum,
                  adds_input};
  auto context = c10::make_intrusive<ConvolutionContext>(spec, std::move(geometry));
  context->ensure_packed();
  return context;
}

void convolution_run(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const auto gate = torch::jit::pop(*stack).toOptional<Tensor>();
  const Ints widths = torch::jit::pop(*stack).toIntVector();
  const bool eager_layout = torch::jit::pop(*stack).toBool();
  const std::vector<Tensor> operands = take_tensors(torch::jit::pop(*stack));
  const auto context = torch::jit::pop(*stack).toCustomClass<ConvolutionContext>();
  const Tensor image = torch::jit::pop(*stack).toTensor();
  torch::jit::push(*stack, gate ? context->run_gated(image, *gate, operands, eager_layout, widths)
                                : context->run_padded(image, operands, eager_layout, widths));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<ConvolutionContext>(m, "ConvolutionContext");
  define(m,
         "convolution_prepack(Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups, "
         "bool transposed, int[] output_padding, str[] post_ops, Tensor? folded_scale, Tensor? folded_shift, "
         "int? math_mode, Tensor? vanished=None, bool widens=False, bool needs_batch=False, bool is_sum=False, "
         "bool adds_input=False) -> __torch__.torch.classes.ipex.ConvolutionContext",
         convolution_prepack);
  define(m,
         "convolution_run(Tensor input, __torch__.torch.classes.ipex.ConvolutionContext context, Tensor[] operands, "
         "bool eager_layout, int[] widths=[], Tensor? gate=None) -> Tensor",
         OnStack{convolution_run});
}

}  // namespace
}  // namespace ipex::runtime
