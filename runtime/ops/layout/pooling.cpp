// Pooling of images that are channels-last, in vectors of channels.
//
//   ipex::max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode) -> Tensor
//   ipex::adaptive_avg_pool2d(x, output_size) -> Tensor
//   ipex::mean(x, dim, keepdim) -> Tensor
//
// The kernels take float32 without gradients, that of max_pool2d quantised images (ops/quantized/) too. That of max_pool2d
// computes no indices, which aten computes and drops; that of the others averages whole images. All else is left to aten,
// also what aten refuses; a profiler shows it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

constexpr int64_t elements_worth_waking = 32768;

// Of dimension `i` of two, as the op spells it: one number may stand for both.
Windows windows_of(int64_t i, int64_t pixels, at::IntArrayRef size, at::IntArrayRef stride, at::IntArrayRef padding,
                   at::IntArrayRef dilation) {
  const auto of = [i](at::IntArrayRef list) { return list.size() == 1 ? list[0] : list[i]; };
  return {pixels, of(size), of(stride.empty() ? size : stride), of(padding), of(dilation)};
}

// None where aten refuses them.
bool are_windows(const Windows& w) {
  return w.size > 0 && w.stride > 0 && w.dilation > 0 && w.padding >= 0 && w.padding <= w.size / 2;
}

int64_t count_of(const Windows& w, bool ceil_mode) {
  const int64_t room = w.pixels + 2 * w.padding - w.dilation * (w.size - 1) - 1;
  if (room < 0) return 0;
  const int64_t count = (room + (ceil_mode ? w.stride - 1 : 0)) / w.stride + 1;
  // The last window begins in the image or the padding before it.
  return ceil_mode && (count - 1) * w.stride >= w.pixels + w.padding ? count - 1 : count;
}

const char* reason_for_aten(const at::Tensor& x, bool may_be_bytes = false) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  const bool is_byte = may_be_bytes && x.scalar_type() == at::kByte && is_plain_cpu(x);
  if (!is_byte && !is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (wants_gradient(x)) return "its input requires a gradient";
  if (x.dim() != 4 || x.numel() == 0 || x.suggest_memory_format() != at::MemoryFormat::ChannelsLast ||
      !x.is_contiguous(at::MemoryFormat::ChannelsLast)) {
    return "its input is not channels-last";
  }
  return nullptr;
}

at::Tensor max_pool2d(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                      at::IntArrayRef dilation, bool ceil_mode) {
  const auto in_aten = [&](const char* reason) {
    RECORD_FUNCTION(c10::str("ipex::max_pool2d in aten: ", reason), {});
    // aten counts the pixels of an image of 8-bit numbers in 8 bits. Floats hold them exactly.
    const bool is_byte = x.scalar_type() == at::kByte;
    const at::Tensor y =
        at::max_pool2d(is_byte ? x.to(at::kFloat) : x, kernel_size, stride, padding, dilation, ceil_mode);
    return is_byte ? y.to(at::kByte) : y;
  };
  if (const char* reason = reason_for_aten(x, /*may_be_bytes=*/true)) return in_aten(reason);
  const auto has_one_or_two = [](at::IntArrayRef list) { return list.size() == 1 || list.size() == 2; };
  if (!has_one_or_two(kernel_size) || !(stride.empty() || has_one_or_two(stride)) || !has_one_or_two(padding) ||
      !has_one_or_two(dilation)) {
    return in_aten("its windows are not those of images");
  }
  Pooling pooling{.channels = x.size(1),
                  .vertical = windows_of(0, x.size(2), kernel_size, stride, padding, dilation),
                  .horizontal = windows_of(1, x.size(3), kernel_size, stride, padding, dilation),
                  .result_width = 0};
  if (!are_windows(pooling.vertical) || !are_windows(pooling.horizontal)) return in_aten("its windows are no windows");
  const int64_t height = count_of(pooling.vertical, ceil_mode);
  pooling.result_width = count_of(pooling.horizontal, ceil_mode);
  if (height < 1 || pooling.result_width < 1) return in_aten("its input is smaller than a window");

  const at::Tensor y = empty_result({x.size(0), x.size(1), height, pooling.result_width},
                                    x.options().memory_format(at::MemoryFormat::ChannelsLast));
  const int64_t image = x.numel() / x.size(0), row = pooling.result_width * pooling.channels;
  const int64_t work = row * pooling.vertical.size * pooling.horizontal.size;
  const auto pool = [&]<typename T>(void (*pool_row)(const T*, const Pooling&, int64_t, T*)) {
    const T* from = x.const_data_ptr<T>();
    T* to = y.mutable_data_ptr<T>();
    const int64_t rows = x.size(0) * height;
    at::parallel_for(0, rows, grain_of(rows, rows * work, elements_worth_waking), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        pool_row(from + i / height * image, pooling, i % height, to + i * row);
      }
    });
  };
  if (x.scalar_type() == at::kByte) {
    pool(kernels().pooling.max_pool_row_of_bytes);
  } else {
    pool(kernels().pooling.max_pool_row);
  }
  return y;
}

// Of each image a pixel with the averages of its channels.
at::Tensor average(const at::Tensor& x, at::MemoryFormat format, bool keepdim = true) {
  const int64_t channels = x.size(1), image = x.numel() / x.size(0);
  at::DimVector sizes{x.size(0), channels};
  if (keepdim) sizes.insert(sizes.end(), {1, 1});
  const at::Tensor y = empty_result(sizes, x.options().memory_format(format));
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  // In blocks of channels, so that one image is enough for all threads.
  constexpr int64_t channels_of_a_block = 64;
  const int64_t blocks = at::divup(channels, channels_of_a_block), pieces = x.size(0) * blocks;
  at::parallel_for(0, pieces, grain_of(pieces, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i / blocks, first = i % blocks * channels_of_a_block;
      kernels().pooling.average(from + at * image + first, x.size(2), x.size(3), channels,
                                std::min(channels_of_a_block, channels - first), to + at * channels + first);
    }
  });
  return y;
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& x, at::IntArrayRef output_size) {
  const char* reason = reason_for_aten(x);
  if (!reason && output_size != at::IntArrayRef{1, 1}) reason = "its result is not one pixel";
  if (reason) {
    RECORD_FUNCTION(c10::str("ipex::adaptive_avg_pool2d in aten: ", reason), {});
    return at::adaptive_avg_pool2d(x, output_size);
  }
  return average(x, at::MemoryFormat::ChannelsLast);
}

at::Tensor mean(const at::Tensor& x, at::IntArrayRef dim, bool keepdim) {
  const char* reason = reason_for_aten(x);
  const bool are_of_images = dim == at::IntArrayRef{2, 3} || dim == at::IntArrayRef{-2, -1} ||
                             dim == at::IntArrayRef{3, 2} || dim == at::IntArrayRef{-1, -2};
  if (!reason && !are_of_images) reason = "it does not average whole images";
  if (reason) {
    RECORD_FUNCTION(c10::str("ipex::mean in aten: ", reason), {});
    return at::mean(x, dim, keepdim);
  }
  return average(x, at::MemoryFormat::Contiguous, keepdim);  // so it is in eager
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def(
      "max_pool2d(Tensor x, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> Tensor",
      max_pool2d);
  m.def("adaptive_avg_pool2d(Tensor x, int[] output_size) -> Tensor", adaptive_avg_pool2d);
  m.def("mean(Tensor x, int[] dim, bool keepdim=True) -> Tensor", mean);
}

}  // namespace
}  // namespace ipex::runtime
