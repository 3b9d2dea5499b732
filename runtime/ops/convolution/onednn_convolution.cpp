// oneDNN's primitives, and the layout of their weight: what is left to them, and how they are asked.
#include <string_view>

#include "onednn/row_width.h"
#include "ops/convolution/convolution.h"
#include "packed/pad_rows.h"

namespace ipex::runtime {

using at::Tensor;
using dnnl::memory;

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

bool ConvolutionContext::has_a_group_per_channel() const {
  return geometry_.groups > 1 && geometry_.groups == input_channels() && geometry_.groups == output_channels();
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
  // Kernels for AMX from before brgemm fill rows up to whole tiles with what lies behind them. oneDNN has them where brgemm
  // declines: for small images and wide padding.
  const auto is_older = [](std::string_view kernel) {
    return kernel.starts_with("jit") && kernel.find("amx") != std::string_view::npos;
  };
  return right_convolution({source, weight_desc, bias_desc, result}, geometry_,
                           attributes(mode, fused, result, /*channel=*/1), is_older);
}

dnnl::primitive_desc right_convolution(const ConvolutionDescs& descs, const ConvolutionGeometry& geometry,
                                       const dnnl::primitive_attr& attr,
                                       c10::function_ref<bool(std::string_view)> is_wrong) {
  memory::dims dilation = geometry.dilation, end = geometry.end;
  for (auto& d : dilation) --d;  // oneDNN counts the holes
  for (size_t i = 0; i < end.size(); ++i) end[i] -= geometry.output_padding[i];
  const auto make = [&]<typename Primitive>(std::type_identity<Primitive>, dnnl::algorithm algorithm) {
    return typename Primitive::primitive_desc(engine(), dnnl::prop_kind::forward_inference, algorithm, descs.source,
                                              descs.weight, descs.bias, descs.result, geometry.stride, dilation,
                                              geometry.begin, end, attr, /*allow_empty=*/true);
  };
  dnnl::primitive_desc desc;
  if (geometry.transposed) {
    desc = make(std::type_identity<dnnl::deconvolution_forward>(), dnnl::algorithm::deconvolution_direct);
  } else {
    desc = make(std::type_identity<dnnl::convolution_forward>(), dnnl::algorithm::convolution_direct);
  }
  while (desc && is_wrong(desc.impl_info_str())) {
    if (!desc.next_impl()) return {};
  }
  return desc;
}

}  // namespace ipex::runtime
