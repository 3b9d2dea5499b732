// Convolutions with packed weights: 1-, 2- and 3-d, and transposed.
//
//   ipex::convolution_prepack(weight, bias, stride, padding, dilation, groups, transposed, output_padding, post_ops,
//                             folded_scale, folded_shift, math_mode, vanished, widens, needs_batch,
//                             is_sum, adds_input) -> ConvolutionContext
//   ipex::convolution_run(input, context, operands, eager_layout) -> Tensor
//   ipex::padded_convolution_run(input, context, operands, eager_layout, widths) -> Tensor
//     of the image after constant_pad_nd: padding that the call computes, as TensorFlow's "same" follows from the image
//   ipex::gated_convolution_run(image, gate, context, operands, eager_layout) -> Tensor
//     of image * gate, as squeeze and excitation multiplies the channels of an image
//
// `padding` has a number per dimension or, where the two ends differ, the beginnings followed by the ends. A 1-d
// convolution is computed as the 2-d one that aten makes of it, on an image one pixel high.
// Computes on channels-last activations, where oneDNN's brgemm kernels are fastest; an input in another layout is
// converted first, but for an image of few channels, which a kernel of our own reads in any layout.
#include "ops/convolution/convolution.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <string_view>

#include "isa/isa.h"
#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/weight_memory.h"
#include "onednn/row_width.h"
#include "ops/convolution/convolution_strips.h"
#include "ops/convolution/few_channels.h"
#include "ops/convolution/sequence_product.h"
#include "ops/product/product.h"
#include "ops/product/tile_product.h"
#include "packed/damaged.h"
#include "packed/dead_operand.h"
#include "packed/door.h"
#include "packed/pad_rows.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using dnnl::memory;
using Ints = std::vector<int64_t>;

constexpr const char* op_name = "ipex::convolution_run";

// By which our depthwise kernel moves over a row.
constexpr int64_t widest_stride = 2;

// The weight of a depthwise convolution as kernels/depthwise.h reads it: [window rows][window columns][channels].
struct DepthwiseWeight {
  Tensor weight;
};

// The weight in bfloat16, in a layout for oneDNN. Null where it has no kernel.
struct RoundedWeight {
  explicit RoundedWeight(std::unique_ptr<const BlockedWeight> weight) : blocked(std::move(weight)) {}
  std::unique_ptr<const BlockedWeight> blocked;
};

// What the layout of a weight depends on, beside the weight.
Ints numbers_of(const ConvolutionGeometry& geometry) {
  Ints numbers{geometry.spatial_rank, geometry.groups, geometry.transposed};
  for (const Ints* list :
       {&geometry.stride, &geometry.begin, &geometry.end, &geometry.dilation, &geometry.output_padding}) {
    numbers.insert(numbers.end(), list->begin(), list->end());
  }
  return numbers;
}

// Kernels for AMX from before brgemm fill rows up to whole tiles with what lies behind them. oneDNN has them where brgemm
// declines: for small images and wide padding.
dnnl::primitive_desc without_older_tiles(dnnl::primitive_desc desc) {
  const auto is_older = [](std::string_view name) {
    return name.starts_with("jit") && name.find("amx") != std::string_view::npos;
  };
  while (desc && is_older(desc.impl_info_str())) {
    if (!desc.next_impl()) return {};
  }
  return desc;
}

// Whether it is a number for each channel of each image, one after the other.
bool is_gate_of(const Tensor& image, const Tensor& gate) {
  return image.dim() == 4 && gate.dim() == 4 && gate.size(0) == image.size(0) && gate.size(1) == image.size(1) &&
         gate.numel() == image.size(0) * image.size(1) && is_plain_cpu_float(gate) && !wants_gradient(gate) &&
         gate.is_contiguous() && image.numel() > 0 && is_plain_cpu_float(image) && !wants_gradient(image) &&
         image.is_contiguous(at::MemoryFormat::ChannelsLast) && !at::autocast::is_autocast_enabled(at::kCPU);
}

Tensor gated(const Tensor& image, const Tensor& gate) {
  if (!is_gate_of(image, gate)) return image * gate;
  constexpr int64_t elements_worth_waking = 32768;
  const int64_t channels = image.size(1), pixels = image.size(2) * image.size(3), rows = image.size(0) * pixels;
  const Tensor result = empty_result(image.sizes(), image.options().memory_format(at::MemoryFormat::ChannelsLast));
  const RowGates gates{gate.const_data_ptr<float>(), pixels};
  const float* from = image.const_data_ptr<float>();
  float* to = result.mutable_data_ptr<float>();
  parallel_for(rows, grain_of(rows, image.numel(), elements_worth_waking), [&](int64_t first, int64_t last) {
    gates.apply(from, channels, first, last, channels, to + first * channels);
  });
  return result;
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

bool ConvolutionContext::reads_gated(const Tensor& image, bool eager_layout) const {
  if (eager_layout || !accepts(image, eager_layout) || !is_product(image)) return false;
  const int64_t pixels = c10::multiply_integers(kernel_result_sizes(image.sizes())) / output_channels();
  return pixels > most_few_rows && !rounds(pixels);
}

Tensor ConvolutionContext::run_gated(const Tensor& image, const Tensor& gate, const std::vector<Tensor>& operands,
                                     bool eager_layout) const {
  if (!is_gate_of(image, gate) || !reads_gated(image, eager_layout)) {
    return run(gated(image, gate), operands, eager_layout);
  }
  check_operands(operands);
  const bool may_accumulate = begins_with_addition() && is_dead(operands.front());
  size_t done = 0;
  const Tensor result = run_product(image, operands, may_accumulate, eager_layout, done, gate);
  return apply_rest(result, operands, done);
}

void ConvolutionContext::multiply_pixels(const InputRows& pixels, float* result) const {
  FusedPostOps all;
  all.count = post_ops().size();
  KernelSteps::Room room;
  const ElementwiseSteps steps = steps_.of_call(all, bias(), output_channels(), room);
  multiply(product_of(pixels, input_channels(), *panels_for_pixels(), steps, result));
}

State ConvolutionContext::state() const {
  Integers integers{{"spatial_rank", {geometry_.spatial_rank}},
                    {"stride", geometry_.stride},
                    {"padding_begin", geometry_.begin},
                    {"padding_end", geometry_.end},
                    {"dilation", geometry_.dilation},
                    {"output_padding", geometry_.output_padding},
                    {"groups", {geometry_.groups}},
                    {"transposed", {geometry_.transposed}}};
  if (geometry_.pads_image) integers["pads_image"] = {1};
  return save(spec(), integers);
}

c10::intrusive_ptr<ConvolutionContext> ConvolutionContext::load(const State& state) {
  const StateReader reader(op_name, state);
  const int64_t spatial_rank = reader.integers("spatial_rank", 1, 1)[0];
  TORCH_CHECK(spatial_rank <= 3, op_name, ": expected at most 3 dimensions, got ", spatial_rank, damaged);
  const size_t rank = spatial_rank == 3 ? 3 : 2;
  ConvolutionGeometry geometry{spatial_rank,
                               reader.integers("stride", rank, 1),
                               reader.integers("padding_begin", rank, 0),
                               reader.integers("padding_end", rank, 0),
                               reader.integers("dilation", rank, 1),
                               reader.integers("output_padding", rank, 0),
                               reader.integers("groups", 1, 1)[0],
                               reader.integers("transposed", 1, 0)[0] != 0,
                               std::get<2>(state).contains("pads_image")};
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
  const int64_t rank = input.dim();
  TORCH_CHECK(
      (rank == batch_rank() || rank == batch_rank() - 1) && input.size(channel_dimension(rank)) == input_channels(),
      op_name, ": expected input of ", batch_rank(), " dimensions, or ", batch_rank() - 1, " without a batch, with ",
      input_channels(), " channels (weight is ", weight_sizes(), "), got ", input.sizes(), ".");
  const Ints sizes = kernel_result_sizes(batched(input).sizes());
  TORCH_CHECK(std::all_of(sizes.begin() + 2, sizes.end(), [](int64_t size) { return size >= 0; }), op_name,
              ": expected an input at least as large as the kernel ", weight_sizes(), " after padding ",
              geometry_.begin, ", got ", input.sizes(), ".");
}

Tensor ConvolutionContext::reference(const Tensor& input, const Tensor& weight, const Tensor& bias) const {
  // aten's kernels for 16 bits pair an odd channel with the next pixel too.
  const bool is_odd = !has_a_group_per_channel() && input_channels() / geometry_.groups % 2 == 1;
  const bool is_autocast = at::autocast::is_autocast_enabled(at::kCPU);
  const at::ScalarType narrow = is_autocast ? at::autocast::get_autocast_dtype(at::kCPU) : dtype();
  const auto becomes_narrow = [&](const Tensor& x) {
    return is_autocast ? x.is_floating_point() && x.scalar_type() != at::kDouble : x.scalar_type() == narrow;
  };
  // Of nothing, as transposed ones of 16 bits may give and those of floats may not.
  const Ints sizes = kernel_result_sizes(batched(input).sizes());
  const bool gives_nothing = std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
  if ((is_odd || is_brgemm_at_fault(input)) && at::isReducedFloatingType(narrow) && becomes_narrow(input) &&
      becomes_narrow(weight) && !wants_gradient(input) && !gives_nothing) {
    const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::DispatchKey::AutocastCPU);
    const Tensor wide = bias.defined() ? bias.to(at::kFloat) : bias;
    return reference(input.to(at::kFloat), weight.to(at::kFloat), wide).to(narrow);
  }
  if (is_brgemm_at_fault(input)) return out_of_the_corner(input, weight, bias);
  if (geometry_.begin == geometry_.end && !(geometry_.pads_image && input.numel() == 0)) {
    return anchor_in_aten(input, weight, bias, geometry_.begin, geometry_.stride);
  }
  return anchor_in_aten(padded(input), weight, bias, no_padding(), geometry_.stride);
}

Tensor ConvolutionContext::out_of_the_corner(const Tensor& input, const Tensor& weight, const Tensor& bias) const {
  if (at::isReducedFloatingType(input.scalar_type()) && input.scalar_type() == weight.scalar_type()) {
    const Tensor wide = bias.defined() ? bias.to(at::kFloat) : bias;
    return out_of_the_corner(input.to(at::kFloat), weight.to(at::kFloat), wide).to(input.scalar_type());
  }
  const Ints sizes = batched(input).sizes().vec(), result = kernel_result_sizes(sizes);
  const auto dimension_of = [&](size_t i) { return input.dim() - static_cast<int64_t>(kernel_rank() - i); };
  const size_t first = kernel_rank() - static_cast<size_t>(geometry_.spatial_rank);
  Tensor image = input, taps = weight;
  Ints stride = geometry_.stride, widths;
  for (size_t i = kernel_rank(); i-- > first && !geometry_.transposed;) {
    const auto [begin, end, from, count] = geometry_.without_dead_taps(i, sizes, weight_sizes());
    taps = taps.narrow(taps.dim() - static_cast<int64_t>(kernel_rank() - i), from, count);
    widths.insert(widths.end(), {begin, end});  // negative: the image is cut
  }
  if (!geometry_.transposed) image = at::constant_pad_nd(image, widths);
  for (size_t i = first; i < kernel_rank() && !geometry_.transposed; ++i) {
    if (result[2 + i] != 1) continue;
    const int64_t count = taps.size(taps.dim() - static_cast<int64_t>(kernel_rank() - i));
    image = image.narrow(dimension_of(i), 0, geometry_.dilation[i] * (count - 1) + 1);
    stride[i] = 1;
  }
  const auto plain = at::MemoryFormat::Contiguous;
  Tensor y = geometry_.spreads_far(weight_sizes())
                 ? spread_in_aten(image, taps, bias)
                 : anchor_in_aten(with_format(image, plain), with_format(taps, plain), bias, no_padding(), stride);
  for (size_t i = first; i < kernel_rank() && geometry_.transposed; ++i) {
    y = y.narrow(dimension_of(i), geometry_.begin[i], result[2 + i]);
  }
  return as_original_image(with_format(batched(y), eager_format(input)), y, geometry_.spatial_rank);
}

std::vector<LiveTaps> ConvolutionContext::taps_to_keep(const Tensor& input) const {
  // Strides of the result follow from the plain weight's, which a single number has lost, and from whether the two ends of
  // the padding differ.
  const bool keeps_format = weight_format() == at::MemoryFormat::Contiguous || weight_sizes()[1] > 1;
  const bool may_trim = dtype() == at::kFloat && geometry_.spatial_rank <= 2 && !geometry_.transposed &&
                        input.dim() == batch_rank() && geometry_.begin == geometry_.end && keeps_format;
  if (!may_trim || !is_brgemm_at_fault(input)) return {};
  const Ints sizes = batched(input).sizes().vec();
  std::vector<LiveTaps> taps;
  for (size_t i = 0; i < kernel_rank(); ++i) {
    taps.push_back(geometry_.without_dead_taps(i, sizes, weight_sizes()));
    if (taps.back().begin != taps.back().end || taps.back().begin < 0) return {};
  }
  const auto [geometry, weight] = trimmed(taps);
  return geometry.is_brgemm_at_fault(sizes, weight) ? std::vector<LiveTaps>() : taps;
}

std::pair<ConvolutionGeometry, Ints> ConvolutionContext::trimmed(const std::vector<LiveTaps>& taps) const {
  std::pair<ConvolutionGeometry, Ints> made{geometry_, weight_sizes()};
  for (size_t i = 0; i < taps.size(); ++i) {
    made.first.begin[i] = taps[i].begin;
    made.first.end[i] = taps[i].end;
    made.second[2 + i] = taps[i].count;
    if (taps[i].count == 1) made.first.dilation[i] = 1;  // kernels of our own ask for that
  }
  return made;
}

c10::intrusive_ptr<ConvolutionContext> ConvolutionContext::with_taps(const std::vector<LiveTaps>& taps) const {
  PrimitiveKey key;
  for (const auto& [begin, end, from, count] : taps) key.insert(key.end(), {begin, from, count});
  return *with_taps_.get(key, [&] {
    Spec spec = this->spec();
    for (size_t i = 0; i < taps.size(); ++i) {
      spec.weight = spec.weight.narrow(static_cast<int64_t>(2 + i), taps[i].from, taps[i].count);
    }
    spec.weight = with_format(spec.weight, weight_format());
    // The folded batch_norm is only taken out again for images without a batch. The result has the strides of its op.
    spec.is_sum = follows_anchor();
    spec.folded_scale = spec.folded_shift = spec.vanished = Tensor();
    return c10::make_intrusive<ConvolutionContext>(spec, trimmed(taps).first);
  });
}

Tensor ConvolutionContext::padded(const Tensor& input) const {
  Ints widths;
  for (size_t i = kernel_rank(); i-- > kernel_rank() - geometry_.spatial_rank;) {
    widths.insert(widths.end(), {geometry_.begin[i], geometry_.end[i]});
  }
  return at::constant_pad_nd(input, widths);
}

Tensor ConvolutionContext::anchor_in_aten(const Tensor& x, const Tensor& w, const Tensor& b, const Ints& padding,
                                          const Ints& stride) const {
  const auto& [rank, own_stride, begin, end, dilation, output_padding, groups, transposed, pads_image] = geometry_;
  if (rank == 1) {
    const Tensor flat = w.squeeze(2);
    return transposed ? at::conv_transpose1d(x, flat, b, stride[1], padding[1], output_padding[1], groups, dilation[1])
                      : at::conv1d(x, flat, b, stride[1], padding[1], dilation[1], groups);
  }
  if (rank == 2) {
    return transposed ? at::conv_transpose2d(x, w, b, stride, padding, output_padding, groups, dilation)
                      : at::conv2d(x, w, b, stride, padding, dilation, groups);
  }
  return transposed ? at::conv_transpose3d(x, w, b, stride, padding, output_padding, groups, dilation)
                    : at::conv3d(x, w, b, stride, padding, dilation, groups);
}

Tensor ConvolutionContext::spread_in_aten(const Tensor& x, const Tensor& w, const Tensor& b) const {
  const auto& [rank, stride, begin, end, dilation, output_padding, groups, transposed, pads_image] = geometry_;
  const std::vector<Tensor> images = batched(x).chunk(groups, 1), weights = w.chunk(groups, 0);
  const auto spread = rank == 3 ? at::slow_conv_transpose3d : at::slow_conv_transpose2d;
  std::vector<Tensor> results;
  for (size_t i = 0; i < images.size(); ++i) {
    const Tensor bias = b.defined() ? b.chunk(groups)[i] : b;
    results.push_back(spread(images[i], weights[i], weights[i].sizes().slice(2), bias, stride, no_padding(),
                             output_padding, dilation));
  }
  return as_original_image(at::cat(results, 1), x, rank);
}

Tensor ConvolutionContext::run_own_kernel(const Tensor& input, const std::vector<Tensor>& operands, bool may_accumulate,
                                          bool eager_layout, size_t& done) const {
  if (const auto taps = taps_to_keep(input); !taps.empty()) {
    done = post_ops().size();
    return with_taps(taps)->run(input, operands, eager_layout);
  }
  if (is_product(input)) return run_product(input, operands, may_accumulate, eager_layout, done);
  if (const WeightTiles tiles = tiles_for_runs(input); tiles.are_used) {
    return run_runs(tiles, input, operands, eager_layout, done);
  }
  if (gains_by_depthwise_kernel() || reads_piece(input)) return run_depthwise(input, operands, eager_layout, done);
  if (gains_by_few_channels()) return run_few_channels(input, operands, eager_layout, done);
  const bool rounds = rounds_windows(input);
  std::optional<Winograd::Form> form;
  if (is_winograds() && !(rounds && isa::is_in_use(isa::Level::AMX))) {  // which multiplies faster than this saves
    form = Winograd::form_for(group_size(), kernel_result_sizes(batched(input).sizes()), geometry_.dilation);
  }
  if (!form) {
    return rounds ? run_rounded(input, operands, eager_layout, done) : Tensor();
  }
  const auto& winograd = weight().derived<Winograd>([&] {
    return std::make_unique<const Winograd>([&] { return plain_weight(); }, group_size(), *form, stored_forms());
  });
  const FusedPostOps fused = fuse_into_result(input, operands, eager_layout, KernelSteps::applies);
  const Tensor source = pixels_of(input), result = allocate(source);
  KernelSteps::Room room;
  const ElementwiseSteps steps = steps_.of_call(fused, bias(), output_channels(), room);
  if (!winograd.convolve(source, geometry_.begin, geometry_.dilation, steps, result)) return {};
  done = fused.count;
  return user_view(result, input, eager_layout);
}

bool ConvolutionContext::rounds_windows(const Tensor& input) const {
  constexpr int64_t least_channels = 16, least_products = 1 << 21;
  const Ints result = kernel_result_sizes(batched(input).sizes());
  const int64_t pixels = c10::multiply_integers(result) / output_channels();
  const bool has_tiles = isa::is_in_use(isa::Level::AMX);
  return dtype() == at::kFloat && math_mode_now(math_mode()) == FP32MathMode::BF32 &&
         (has_tiles ? are_whole_tiles(input_channels()) : isa::has_fast_avx512_bf16()) && !geometry_.transposed &&
         geometry_.groups == 1 && input_channels() % 2 == 0 &&
         std::min(input_channels(), output_channels()) >= least_channels &&
         pixels * c10::multiply_integers(weight_sizes()) >= least_products;
}

Tensor ConvolutionContext::run_rounded(const Tensor& input, const std::vector<Tensor>& operands, bool eager_layout,
                                       size_t& done) const {
  const Tensor image = kernel_view(input);
  const FusedPostOps fused = fuse_into_result(input, operands, eager_layout);
  const auto desc_of = [&](const memory::desc& weight) {
    auto desc = convolution_desc(image.sizes().vec(), weight, fused, FP32MathMode::FP32, memory::data_type::bf16);
    return desc && skip_reference_implementations(desc) ? desc : dnnl::primitive_desc();
  };
  constexpr const char* kind = "bfloat16";
  const auto make = [&] {
    const dnnl::primitive_desc desc = desc_of({weight_dims(), memory::data_type::bf16, memory::format_tag::any});
    if (!desc) return std::make_unique<const RoundedWeight>(nullptr);
    Tensor plain = at::empty(weight_sizes(), at::TensorOptions(at::kBFloat16).memory_format(weight_format()));
    if (!is_stored_in_layout(stored_forms(), kind, desc.weights_desc())) plain.copy_(plain_weight());
    return std::make_unique<const RoundedWeight>(
        std::make_unique<BlockedWeight>(plain, plain_weight_desc(plain), desc.weights_desc(), stored_forms(), kind));
  };
  const BlockedWeight* rounded = weight().derived<RoundedWeight>(make).blocked.get();
  if (!rounded) return {};
  const auto prepared =
      this->prepared(at::kBFloat16, PrimitiveKey(image.sizes()), fused, [&](FP32MathMode) -> std::optional<Prepared> {
        const dnnl::primitive_desc desc = desc_of(rounded->desc());
        return desc ? std::optional(Prepared(desc, bias().defined())) : std::nullopt;
      });
  if (!prepared) return {};
  const Tensor source = empty_result(image.sizes(), image.options().dtype(at::kBFloat16).memory_format(channels_last_));
  source.copy_(image);
  const Tensor result = allocate(image);
  if (prepared->run(source, *rounded, bias(), result, fused.operands)) return {};
  done = fused.count;
  return user_view(result, input, eager_layout);
}

Tensor ConvolutionContext::run_product(const Tensor& input, const std::vector<Tensor>& operands, bool may_accumulate,
                                       bool eager_layout, size_t& done, const Tensor& gate) const {
  const FusedPostOps fused = fuse_into_result(input, operands, eager_layout, KernelSteps::applies);
  const Tensor image = pixels_of(input), source = pixels_that_windows_see(image);
  const int64_t channels = input_channels(), pixels = source.numel() / channels;
  const bool accumulates = may_accumulate && adds_in_place(fused, operands.front());
  const Tensor result =
      accumulates ? in_memory_of(operands.front(), fused.operands.front().sizes(), channels_last_) : allocate(image);
  KernelSteps::Room room;
  const ElementwiseSteps steps = steps_.of_call(fused, bias(), output_channels(), room);
  const InputRows rows{source.const_data_ptr<float>(), pixels, pixel_stride(source)};
  const Panels& panels = *blocked_weight()->panels();
  if (rounds(pixels)) {
    const Bf16Weight& copy = weight().derived<Bf16Weight>([&] {
      return std::make_unique<const Bf16Weight>([&] { return panels; }, output_channels(), channels, stored_forms());
    });
    copy.multiply(rows, steps, result.data_ptr<float>());
  } else {
    const WeightTiles tiles = tiles_for(pixels, weight(), panels, channels, output_channels());
    const RowsProduct product = product_of(rows, channels, panels, steps, result.data_ptr<float>(), tiles);
    if (gate.defined()) {
      multiply_gated(product, {gate.const_data_ptr<float>(), pixels / source.size(0)});
    } else {
      multiply(product);
    }
  }
  done = fused.count;
  return user_view(result, input, eager_layout);
}

Tensor ConvolutionContext::run_depthwise(const Tensor& input, const std::vector<Tensor>& operands, bool eager_layout,
                                         size_t& done) const {
  const FusedPostOps fused = fuse_into_result(input, operands, eager_layout, KernelSteps::applies);
  const Tensor image = pixels_of(input), result = allocate(image), weight = depthwise_weight();
  KernelSteps::Room room;
  convolve(strips(image, weight, steps_.of_call(fused, bias(), output_channels(), room), result));
  done = fused.count;
  return user_view(result, input, eager_layout);
}

WeightTiles ConvolutionContext::tiles_for_runs(const Tensor& input) const {
  if (!sees_runs(geometry_, weight_sizes()) || !is_for_own_kernels()) return {};
  const bool may_round = math_mode_now(math_mode()) == FP32MathMode::BF32;
  if (may_round || !blocked_weight()) return {};
  const std::optional<Panels>& panels = blocked_weight()->panels();
  if (!panels || !can_multiply(*panels)) return {};
  const int64_t windows = windows_at_once(geometry_, batched(input).sizes(), weight_sizes());
  return tiles_for(windows, weight(), *panels, weight_sizes()[3] * input_channels(), output_channels());
}

Tensor ConvolutionContext::run_runs(const WeightTiles& tiles, const Tensor& input, const std::vector<Tensor>& operands,
                                    bool eager_layout, size_t& done) const {
  const FusedPostOps fused = fuse_into_result(input, operands, eager_layout, KernelSteps::applies);
  const Tensor image = batched(input), result = allocate(image);
  KernelSteps::Room room;
  const ElementwiseSteps steps = steps_.of_call(fused, bias(), output_channels(), room);
  multiply_windows(with_padding_written_out(image, geometry_), weight_sizes()[3], geometry_.stride[1],
                   *blocked_weight()->panels(), tiles, steps, result);
  done = fused.count;
  return user_view(result, input, eager_layout);
}

bool ConvolutionContext::gains_by_few_channels() const {
  // oneDNN rounds on tiles.
  const bool may_round = math_mode_now(math_mode()) == FP32MathMode::BF32 && isa::is_in_use(isa::Level::AMX);
  return is_for_own_kernels() && FewChannels::gains(geometry_, weight_sizes()) && !may_round;
}

Tensor ConvolutionContext::run_few_channels(const Tensor& input, const std::vector<Tensor>& operands, bool eager_layout,
                                            size_t& done) const {
  const auto& layer = weight().derived<FewChannels>([&] {
    return std::make_unique<const FewChannels>([&] { return plain_weight(); }, weight_sizes(), stored_forms());
  });
  const FusedPostOps fused = fuse_into_result(input, operands, eager_layout, KernelSteps::applies);
  const Tensor image = batched(input), result = allocate(image);
  KernelSteps::Room room;
  layer.convolve(image, geometry_, steps_.of_call(fused, bias(), output_channels(), room), result);
  done = fused.count;
  return user_view(result, input, eager_layout);
}

bool ConvolutionContext::is_product(const Tensor& input) const {
  if (!panels_for_product()) return false;
  const int64_t pixels = c10::multiply_integers(kernel_result_sizes(batched(input).sizes())) / output_channels();
  return is_worth_multiplying(pixels) || (moves_by_one() && rounds(pixels));
}

Tensor ConvolutionContext::pixels_of(const Tensor& input) const {
  const Tensor image = batched(input);
  return lies_in_pixels(image) ? image : kernel_view(input);
}

// Rows of a product.
Tensor ConvolutionContext::pixels_that_windows_see(const Tensor& image) const {
  if (moves_by_one()) return image;
  Tensor seen = image;
  for (size_t i = 0; i < kernel_rank(); ++i) {
    const auto dimension = static_cast<int64_t>(2 + i);
    if (geometry_.stride[i] > 1) seen = seen.slice(dimension, 0, image.size(dimension), geometry_.stride[i]);
  }
  return contiguous_result(seen, channels_last_);
}

Facts::Values ConvolutionContext::copies() const {
  const auto copy = [](size_t bytes) { return Facts::Values{{"bfloat16_copy_bytes", static_cast<int64_t>(bytes)}}; };
  if (const Bf16Weight* rounded = weight().made<Bf16Weight>()) return copy(rounded->bytes());
  if (const Facts::Values tiles = kept_tiles(weight()); !tiles.empty()) return tiles;
  const auto* rounded = weight().made<RoundedWeight>();
  return rounded && rounded->blocked ? copy(rounded->blocked->desc().get_size()) : Facts::Values();
}

bool ConvolutionContext::rounds(int64_t pixels) const {
  return pixels > most_few_rows && math_mode_now(math_mode()) == FP32MathMode::BF32 &&
         Bf16Weight::is_worth_it(pixels, input_channels() * output_channels(), /*post_ops=*/0);
}

const Panels* ConvolutionContext::panels_for_pixels() const { return moves_by_one() ? panels_for_product() : nullptr; }

const Panels* ConvolutionContext::panels_for_product() const {
  if (!has_windows_of(1) || geometry_.groups > 1 || !is_all(geometry_.begin, 0) || !is_all(geometry_.end, 0) ||
      !blocked_weight()) {
    return nullptr;
  }
  const std::optional<Panels>& panels = blocked_weight()->panels();
  return panels && can_multiply(*panels) ? &*panels : nullptr;
}

bool ConvolutionContext::has_a_group_per_channel() const {
  return geometry_.groups > 1 && geometry_.groups == input_channels() && geometry_.groups == output_channels();
}

bool ConvolutionContext::is_depthwise() const {
  return is_for_own_kernels() && geometry_.groups == input_channels() && geometry_.groups == output_channels() &&
         blocked_weight();
}

bool ConvolutionContext::gains_by_depthwise_kernel() const {
  // oneDNN's kernels take pixel by pixel, and so read memory in order: with few products and channels that is what counts.
  constexpr int64_t few_products = 9, enough_channels = 96, enough_products_with_gaps = 25;
  if (!is_depthwise() || geometry_.stride[1] > widest_stride) return false;
  const int64_t products = weight_sizes()[2] * weight_sizes()[3];
  if (is_all(geometry_.dilation, 1)) {
    return products > few_products || (products == few_products && input_channels() >= enough_channels);
  }
  // Beyond this padding the kernel for windows with gaps declines, and a slow one is left.
  const int64_t most_padding = kernels().depthwise.width == 16 ? 6 : 4;
  return products >= enough_products_with_gaps || geometry_.begin[1] > most_padding;
}

bool ConvolutionContext::reads_piece(const Tensor& input) const {
  const Tensor image = batched(input);
  return is_depthwise() && geometry_.stride[1] <= widest_stride && is_all(geometry_.dilation, 1) &&
         lies_in_pixels(image) && pixel_stride(image) > image.size(1);
}

ConvolutionStrips ConvolutionContext::strips(const Tensor& image, const Tensor& weight, const ElementwiseSteps& steps,
                                             const Tensor& result) const {
  return {.image = image.const_data_ptr<float>(),
          .images = image.size(0),
          .height = image.size(2),
          .width = image.size(3),
          .image_channels = image.size(1),
          .pixel_stride = pixel_stride(image),
          .expand = std::nullopt,
          .channels = input_channels(),
          .weights = weight.const_data_ptr<float>(),
          .window_height = weight.size(0),
          .window_width = weight.size(1),
          .stride_down = geometry_.stride[0],
          .stride = geometry_.stride[1],
          .dilation_down = geometry_.dilation[0],
          .dilation = geometry_.dilation[1],
          .padding_top = geometry_.begin[0],
          .padding_left = geometry_.begin[1],
          .steps = steps,
          .project = std::nullopt,
          .result = result.mutable_data_ptr<float>(),
          .result_height = result.size(2),
          .result_width = result.size(3)};
}

Tensor ConvolutionContext::depthwise_weight() const {
  const auto make = [&] {
    const Ints& sizes = weight_sizes();
    const Tensor weight = stored_forms().get("depthwise", {at::kFloat, {sizes[2], sizes[3], sizes[0]}}, [&] {
      const Tensor windows = plain_weight().squeeze(1).permute({1, 2, 0});
      return empty_weight(windows.sizes(), windows.options()).copy_(windows);
    });
    return std::make_unique<const DepthwiseWeight>(weight);
  };
  return weight().derived<DepthwiseWeight>(make).weight;
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

bool ConvolutionContext::is_worth_multiplying(int64_t pixels) const {
  constexpr int64_t least_channels = 24, most_pixels = 1024, least_channels_for_tiles = 128;
  const int64_t channels = input_channels(), results = output_channels(), fewest = std::min(channels, results);
  if (moves_by_one() && pixels <= most_pixels) {
    return pixels <= most_rows_of_a_small_product || fewest >= least_channels;
  }
  return fewest >= least_channels_for_tiles && gains_by_tiles(pixels, channels, results, parts_of_floats);
}

bool ConvolutionContext::has_windows_of(int64_t side) const {
  return is_for_own_kernels() && weight_sizes()[2] == side && weight_sizes()[3] == side;
}

bool ConvolutionContext::is_for_own_kernels() const {
  return geometry_.spatial_rank <= 2 && dtype() == at::kFloat && !geometry_.transposed && steps_.has_all();
}

bool ConvolutionContext::is_all(const Ints& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
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

Tensor ConvolutionContext::kernel_source(const Tensor& input) const {
  const Tensor image = kernel_view(input);
  if (extra_channels() == 0) return image;
  Ints sizes = image.sizes().vec();
  sizes[1] += geometry_.groups * extra_channels();
  const Tensor padded = empty_result(sizes, image.options().memory_format(channels_last_));
  pad_rows(image, input_channels() / geometry_.groups, padded, sizes[1] / geometry_.groups);
  return padded;
}

int64_t ConvolutionContext::extra_channels() const {
  if (dtype() == at::kFloat || has_a_group_per_channel()) return 0;  // the latter runs on another kernel
  const int64_t channels = input_channels() / geometry_.groups;
  int64_t read = channels + channels % 2;
  while (multiplies_in_tiles(dtype()) && !are_whole_tiles(read)) read += 2;
  return read - channels;
}

// Windows of single pixels are rows of a product. Of larger ones each pixel is read by itself, filled up with zeros, unless
// there are few channels: then oneDNN takes a row of the window, or all of it, for one row of a product.
bool ConvolutionContext::are_whole_tiles(int64_t channels) const {
  constexpr int64_t enough = 16;
  const auto is_whole = [](int64_t width) { return whole_tiles(width) == width; };
  const auto side = [&](size_t i) { return weight_sizes()[2 + i]; };
  const size_t last = kernel_rank() - 1;
  int64_t pixels = 1;
  for (size_t i = 0; i <= last; ++i) pixels *= side(i);
  if (pixels == 1) return is_whole(channels);
  if (channels >= enough || geometry_.transposed) return true;
  const int64_t row = side(last) * channels, whole = side(last - 1) * row;
  const bool takes_row = geometry_.dilation[last] == 1;
  // Where less of the tiles is empty than with rows. Volumes are never taken so.
  const bool takes_whole = takes_row && geometry_.dilation[last - 1] == 1 && geometry_.spatial_rank < 3 &&
                           whole * filled_up(row, tile_width) > row * filled_up(whole, tile_width);
  return (!takes_row || is_whole(row)) && (!takes_whole || is_whole(whole));
}

Tensor ConvolutionContext::with_extra_channels(const Tensor& x, int64_t d, int64_t groups) const {
  const Tensor grouped = x.unflatten(d, {groups, -1});
  Ints widths(2 * (grouped.dim() - d - 1), 0);
  widths.back() = extra_channels();
  return at::constant_pad_nd(grouped, widths);
}

Tensor ConvolutionContext::allocate(const Tensor& source) const {
  return empty_result(kernel_result_sizes(source.sizes()), source.options().memory_format(channels_last_));
}

Tensor ConvolutionContext::user_view(const Tensor& result, const Tensor& input, bool eager_layout) const {
  const Tensor laid_out = eager_layout ? with_format(result, format_of_result(result, input)) : result;
  return as_original_image(laid_out, input, geometry_.spatial_rank);
}

at::DimVector ConvolutionContext::result_sizes(const Tensor& input) const {
  at::DimVector sizes(kernel_result_sizes(batched(input).sizes()));
  if (geometry_.spatial_rank == 1) sizes.erase(sizes.begin() + 2);
  if (input.dim() != batch_rank()) sizes.erase(sizes.begin());
  return sizes;
}

bool ConvolutionContext::laid_out_as_result(const Tensor& tensor, const Tensor& input, bool eager_layout) const {
  return batched(tensor).is_contiguous(eager_layout ? eager_format(input) : channels_last_);
}

const char* ConvolutionContext::own_reason_for_aten(const Tensor& input, bool eager_layout) const {
  for (size_t i = 0; geometry_.transposed && i < kernel_rank(); ++i) {
    if (geometry_.output_padding[i] >= std::max(geometry_.stride[i], geometry_.dilation[i])) {
      return "aten refuses such an output padding";
    }
  }
  // In 3-d aten has kernels that don't keep channels-last, and its choice depends on the CPU.
  if (eager_layout && geometry_.spatial_rank == 3 && eager_format(input) != at::MemoryFormat::Contiguous) {
    return "the layout of the result is aten's to choose";
  }
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

memory::dims ConvolutionContext::weight_dims() const {
  memory::dims dims{output_channels() / geometry_.groups, input_channels() / geometry_.groups + extra_channels()};
  dims.insert(dims.end(), weight_sizes().begin() + 2, weight_sizes().end());
  if (geometry_.groups > 1) dims.insert(dims.begin(), geometry_.groups);
  return dims;
}

memory::desc ConvolutionContext::plain_weight_desc(const Tensor& weight) const {
  memory::dims strides = weight.strides().vec();
  if (geometry_.transposed) std::swap(strides[0], strides[1]);
  if (geometry_.groups > 1) {
    strides.insert(strides.begin(), weight.stride(0) * (weight.size(0) / geometry_.groups));
  }
  return {weight_dims(), data_type_of(weight.scalar_type()), strides};
}

std::unique_ptr<const BlockedWeight> ConvolutionContext::pack(Tensor& weight) const {
  if (extra_channels() == 0) {
    return std::make_unique<BlockedWeight>(weight, plain_weight_desc(weight), preferred_weight_desc(weight),
                                           stored_forms());
  }
  // A transposed weight begins with the input channels of all groups, another one has those of a single group.
  const int64_t channels = geometry_.transposed ? 0 : 1;
  const Tensor wide = with_extra_channels(weight, channels, geometry_.transposed ? geometry_.groups : 1);
  const Tensor whole = wide.flatten(channels, channels + 1);
  Tensor part = wide.narrow(channels + 1, 0, input_channels() / geometry_.groups);
  return std::make_unique<BlockedWeight>(part, plain_weight_desc(whole), preferred_weight_desc(whole), stored_forms());
}

memory::desc ConvolutionContext::preferred_weight_desc(const Tensor& weight) const {
  Ints sizes{1, input_channels() + geometry_.groups * extra_channels()};
  for (size_t i = 0; i < kernel_rank(); ++i) {
    const int64_t ordinary = geometry_.spatial_rank == 3 ? 14 : geometry_.spatial_rank == 2 ? 28 : i == 0 ? 1 : 128;
    // oneDNN takes a minute to look at wide windows that spread as many pixels.
    sizes.push_back(geometry_.transposed ? ordinary : std::max(ordinary, window(i)));
  }
  auto desc = primitive_desc(sizes, any_weight_desc(), {}, math_mode_for_packing());
  if (desc && skip_reference_implementations(desc)) return desc.weights_desc();
  return plain_weight_desc(weight);
}

dnnl::primitive_desc ConvolutionContext::convolution_desc(const Ints& source_sizes, const memory::desc& weight_desc,
                                                          const FusedPostOps& fused, FP32MathMode mode,
                                                          memory::data_type factors) const {
  const auto channels_last = [&](const Ints& sizes, memory::data_type type) {
    return memory::desc(sizes, type, sizes.size() == 5 ? memory::format_tag::ndhwc : memory::format_tag::nhwc);
  };
  const memory::desc source = channels_last(source_sizes, factors),
                     result = channels_last(kernel_result_sizes(source_sizes), data_type());
  const memory::desc bias_desc =
      bias().defined() ? memory::desc({output_channels()}, bias_data_type(), memory::format_tag::a) : memory::desc();
  memory::dims dilation = geometry_.dilation, end = geometry_.end;
  for (auto& d : dilation) --d;  // oneDNN counts the holes
  if (!geometry_.transposed) {
    return without_older_tiles(dnnl::convolution_forward::primitive_desc(
        engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, source, weight_desc,
        bias_desc, result, geometry_.stride, dilation, geometry_.begin, end,
        attributes(mode, fused, result, /*channel=*/1), /*allow_empty=*/true));
  }
  for (size_t i = 0; i < end.size(); ++i) end[i] -= geometry_.output_padding[i];
  return without_older_tiles(dnnl::deconvolution_forward::primitive_desc(
      engine(), dnnl::prop_kind::forward_inference, dnnl::algorithm::deconvolution_direct, source, weight_desc,
      bias_desc, result, geometry_.stride, dilation, geometry_.begin, end,
      attributes(mode, fused, result, /*channel=*/1), /*allow_empty=*/true));
}

namespace {

c10::intrusive_ptr<ConvolutionContext> convolution_prepack(
    const Tensor& weight, const std::optional<Tensor>& bias, Ints stride, Ints padding, Ints dilation, int64_t groups,
    bool transposed, Ints output_padding, std::vector<std::string> post_ops, const std::optional<Tensor>& folded_scale,
    const std::optional<Tensor>& folded_shift, std::optional<int64_t> math_mode, const std::optional<Tensor>& vanished,
    bool widens, bool needs_batch, bool is_sum, bool adds_input) {
  constexpr const char* where = "ipex::convolution_prepack";
  TORCH_CHECK(weight.defined() && weight.dim() >= 3 && weight.dim() <= 5, where,
              ": expected a weight of 3 to 5 dimensions, got ", weight.defined() ? c10::str(weight.sizes()) : "none",
              ". Pass it as torch.nn holds it.");
  const auto rank = static_cast<size_t>(weight.dim() - 2);
  for (const auto& [name, list] : {std::pair{"stride", &stride},
                                   {"padding", &padding},
                                   {"dilation", &dilation},
                                   {"output_padding", &output_padding}}) {
    if (list->size() == 1) list->resize(rank, list->front());
    const bool may_have_two_ends = list == &padding && list->size() == 2 * rank;
    TORCH_CHECK(list->size() == rank || may_have_two_ends, where, ": expected 1 or ", rank, " integers in ", name,
                " for a weight of ", weight.sizes(), ", got ", at::IntArrayRef(*list),
                ". Pass one for each dimension of the image.");
  }
  const bool pads_image = padding.size() == 2 * rank;
  Ints begin(padding.begin(), padding.begin() + static_cast<std::ptrdiff_t>(rank));
  Ints end(padding.end() - static_cast<std::ptrdiff_t>(rank), padding.end());
  if (rank == 1) {
    stride.insert(stride.begin(), 1);
    dilation.insert(dilation.begin(), 1);
    for (auto* list : {&begin, &end, &output_padding}) list->insert(list->begin(), 0);
  }
  const Spec spec{op_name,
                  rank == 1 ? weight.unsqueeze(2) : weight,
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
  auto context = c10::make_intrusive<ConvolutionContext>(
      spec, ConvolutionGeometry{static_cast<int64_t>(rank), std::move(stride), std::move(begin), std::move(end),
                                std::move(dilation), std::move(output_padding), groups, transposed, pads_image});
  context->ensure_packed();
  return context;
}

void padded_convolution_run(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const Ints widths = torch::jit::pop(*stack).toIntVector();
  const bool eager_layout = torch::jit::pop(*stack).toBool();
  const std::vector<Tensor> operands = take_tensors(torch::jit::pop(*stack));
  const auto context = torch::jit::pop(*stack).toCustomClass<ConvolutionContext>();
  torch::jit::push(*stack, context->run_padded(torch::jit::pop(*stack).toTensor(), operands, eager_layout, widths));
}

void gated_convolution_run(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const bool eager_layout = torch::jit::pop(*stack).toBool();
  const std::vector<Tensor> operands = take_tensors(torch::jit::pop(*stack));
  const auto context = torch::jit::pop(*stack).toCustomClass<ConvolutionContext>();
  const Tensor gate = torch::jit::pop(*stack).toTensor(), image = torch::jit::pop(*stack).toTensor();
  torch::jit::push(*stack, context->run_gated(image, gate, operands, eager_layout));
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
         "bool eager_layout) -> Tensor",
         OnStack{run_boxed<ConvolutionContext>});
  define(m,
         "padded_convolution_run(Tensor input, __torch__.torch.classes.ipex.ConvolutionContext context, "
         "Tensor[] operands, bool eager_layout, int[] widths) -> Tensor",
         OnStack{padded_convolution_run});
  define(m,
         "gated_convolution_run(Tensor image, Tensor gate, __torch__.torch.classes.ipex.ConvolutionContext context, "
         "Tensor[] operands, bool eager_layout) -> Tensor",
         OnStack{gated_convolution_run});
}

}  // namespace
}  // namespace ipex::runtime
