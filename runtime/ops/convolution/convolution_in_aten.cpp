// A convolution as aten computes it: the reference, and what is left of calls that no kernel takes.
#include <ATen/autocast_mode.h>

#include "ops/convolution/convolution.h"

namespace ipex::runtime {

using at::Tensor;

Tensor ConvolutionContext::reference(const Tensor& input, const Tensor& weight, const Tensor& bias) const {
  // aten's kernels for 16 bits pair an odd channel with the next pixel too.
  const bool is_odd = !has_a_group_per_channel() && input_channels() / geometry_.groups % 2 == 1;
  const bool is_autocast = at::autocast::is_autocast_enabled(at::kCPU);
  const at::ScalarType narrow = is_autocast ? at::autocast::get_autocast_dtype(at::kCPU) : dtype();
  const auto becomes_narrow = [&](const Tensor& x) {
    return is_autocast ? x.is_floating_point() && x.scalar_type() != at::kDouble : x.scalar_type() == narrow;
  };
  // Of nothing, as transposed ones of 16 bits may give and those of floats may not.
  const Ints sizes = kernel_result_sizes(geometry_.batched_sizes(input));
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
  const at::DimVector sizes = geometry_.batched_sizes(input);
  const Ints result = kernel_result_sizes(sizes);
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

}  // namespace ipex::runtime
