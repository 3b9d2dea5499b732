// Pooling of images and volumes, in vectors of channels where they are channels-last, and of pixels where contiguous.
//
//   ipex::max_pool2d(x, kernel_size, stride, padding, dilation, ceil_mode) -> Tensor, and max_pool3d
//   ipex::avg_pool2d(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override) -> Tensor, and
//   avg_pool3d
//   ipex::avg_pool1d(x, kernel_size, stride, padding, ceil_mode, count_include_pad) -> Tensor
//   ipex::adaptive_avg_pool2d(x, output_size) -> Tensor
//   ipex::mean(x, dim, keepdim) -> Tensor
//   ipex::adaptive_avg_pool2d.of_bytes(.., scale, zero_point), ipex::mean.of_bytes: the same of ipex::dequantize(x, scale,
//   zero_point). Sums are integers.
//
// The kernels take float32 without gradients, that of max_pool2d quantised images (ops/quantized/) too, and those of max_pool
// channels-last images of 16 bits. Those of max_pool
// compute no indices, which aten computes and drops; those of avg_pool add in aten's order. The others average whole images
// that are channels-last. All else is left to aten, also what aten refuses; a profiler shows it, with the reason, under the
// name of the op.
#include "ops/layout/pooling.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "ops/quantized/affine.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/window_count.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr int64_t elements_worth_waking = 32768;

// None where aten refuses them.
bool are_windows(const Windows& w) {
  return w.size > 0 && w.stride > 0 && w.dilation > 0 && w.padding >= 0 && w.padding <= w.size / 2;
}

int64_t count_of(const Windows& w, bool ceil_mode) {
  const int64_t count = window_count(w.pixels + 2 * w.padding, w.size, w.dilation, w.stride, ceil_mode);
  // The last window begins in the image or the padding before it.
  return ceil_mode && count > 0 && (count - 1) * w.stride >= w.pixels + w.padding ? count - 1 : count;
}

const char* reason_for_aten(const at::Tensor& x, bool may_be_bytes = false, bool may_be_halves = false) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  const bool is_byte = may_be_bytes && x.scalar_type() == at::kByte && is_plain_cpu(x);
  const bool has_16_bits = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  const bool is_half = may_be_halves && has_16_bits && is_plain_cpu(x);
  if (!is_byte && !is_half && !is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (wants_gradient(x)) return "its input requires a gradient";
  return x.numel() == 0 ? "its input is empty" : nullptr;
}

// The same for ops that read channels-last images alone.
const char* reason_for_images(const at::Tensor& x, bool may_be_bytes = false) {
  if (const char* reason = reason_for_aten(x, may_be_bytes)) return reason;
  const bool is_channels_last = x.dim() == 4 && x.suggest_memory_format() == at::MemoryFormat::ChannelsLast &&
                                x.is_contiguous(at::MemoryFormat::ChannelsLast);
  return is_channels_last ? nullptr : "its input is not channels-last";
}

// The geometry of a call, as the op spells it: one number may stand for all dimensions.
struct Geometry {
  at::IntArrayRef kernel_size, stride, padding, dilation;
  bool ceil_mode;
};

// A call of the kernels: `images` of memory that lies like the input, each with rows of results.
struct Pool {
  Pooling pooling;
  int64_t images, slices, height;
  at::DimVector sizes;
  at::MemoryFormat format;
};

// Fills in `pool`, or says why aten has to compute the call.
const char* plan(const at::Tensor& x, size_t rank, const Geometry& geometry, Pool& pool) {
  if (x.dim() != static_cast<int64_t>(rank) + 2) return "its input has no batch";
  pool.format = x.suggest_memory_format();
  if (!x.is_contiguous(pool.format)) return "its input is neither contiguous nor channels-last";
  const bool is_contiguous = pool.format == at::MemoryFormat::Contiguous;
  if (is_contiguous && x.scalar_type() != at::kFloat) return "its input is not channels-last";
  const bool is_half = at::isReducedFloatingType(x.scalar_type());
  if (is_half && x.size(1) < kernels().few_rows.width) return "its channels fill no register";
  const auto fits = [&](at::IntArrayRef list) { return list.size() == 1 || list.size() == rank; };
  if (!fits(geometry.kernel_size) || !(geometry.stride.empty() || fits(geometry.stride)) || !fits(geometry.padding) ||
      !fits(geometry.dilation)) {
    return "its windows have another rank";
  }
  const auto windows_of = [&](size_t i) {
    const auto of = [i](at::IntArrayRef list) { return list.size() == 1 ? list[0] : list[i]; };
    return Windows{x.size(static_cast<int64_t>(i) + 2), of(geometry.kernel_size),
                   of(geometry.stride.empty() ? geometry.kernel_size : geometry.stride), of(geometry.padding),
                   of(geometry.dilation)};
  };
  pool.sizes = {x.size(0), x.size(1)};
  for (size_t i = 0; i < rank; ++i) {
    const Windows windows = windows_of(i);
    if (!are_windows(windows)) return "its windows are no windows";
    pool.sizes.push_back(count_of(windows, geometry.ceil_mode));
    if (pool.sizes.back() < 1) return "its input is smaller than a window";
  }
  pool.images = is_contiguous ? x.size(0) * x.size(1) : x.size(0);
  pool.pooling.channels = is_contiguous ? 1 : x.size(1);
  pool.pooling.depth = rank == 3 ? windows_of(0) : one_slice;
  pool.pooling.vertical = windows_of(rank - 2);
  pool.pooling.horizontal = windows_of(rank - 1);
  pool.pooling.result_width = pool.sizes.back();
  pool.slices = rank == 3 ? pool.sizes[2] : 1;
  pool.height = pool.sizes[rank];
  return nullptr;
}

template <typename T>
at::Tensor run(const at::Tensor& x, const Pool& pool, PoolRow<T> pool_row) {
  const at::Tensor y = empty_result(pool.sizes, x.options().memory_format(pool.format));
  const T* from = static_cast<const T*>(x.const_data_ptr());
  T* to = static_cast<T*>(y.mutable_data_ptr());
  const Pooling& pooling = pool.pooling;
  const int64_t image = x.numel() / pool.images, row = pooling.result_width * pooling.channels;
  const int64_t rows_of_image = pool.slices * pool.height, rows = pool.images * rows_of_image;
  const int64_t work = y.numel() * pooling.depth.size * pooling.vertical.size * pooling.horizontal.size;
  parallel_for(rows, grain_of(rows, work, elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t within = i % rows_of_image;
      pool_row(from + i / rows_of_image * image, pooling, within / pool.height, within % pool.height, to + i * row);
    }
  });
  return y;
}

template <size_t rank>
at::Tensor max_pool(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                    at::IntArrayRef dilation, bool ceil_mode) {
  Pool pool;
  const char* reason = reason_for_aten(x, /*may_be_bytes=*/rank == 2, /*may_be_halves=*/true);
  if (!reason) reason = plan(x, rank, {kernel_size, stride, padding, dilation, ceil_mode}, pool);
  if (reason) {
    const LeftToAten left(reason, "ipex::max_pool", rank, "d");
    if constexpr (rank == 3) {
      // aten's gradient takes a gradient that lies channels-last for a batch of them, and refuses that of one image.
      const bool is_one = x.dim() == 4;
      const at::Tensor y =
          at::max_pool3d(is_one ? x.unsqueeze(0) : x, kernel_size, stride, padding, dilation, ceil_mode);
      return is_one ? y.squeeze(0) : y;
    }
    // aten counts the pixels of an image of 8-bit numbers in 8 bits. Floats hold them exactly.
    const bool is_byte = x.scalar_type() == at::kByte;
    const at::Tensor y =
        at::max_pool2d(is_byte ? x.to(at::kFloat) : x, kernel_size, stride, padding, dilation, ceil_mode);
    return is_byte ? y.to(at::kByte) : y;
  }
  const PoolingKernels& kernels = runtime::kernels().pooling;
  switch (x.scalar_type()) {
    case at::kByte:
      return run(x, pool, kernels.max_pool_row_of_bytes);
    case at::kBFloat16:
      return run(x, pool, kernels.max_pool_row_of_bfloat16);
    case at::kHalf:
      return run(x, pool, kernels.max_pool_row_of_float16);
    default:
      return run(x, pool, kernels.max_pool_row);
  }
}

// Without padding: means of such volumes aten refuses.
bool is_smaller_than_a_window(const Pooling& pooling) {
  const auto is_smaller = [](const Windows& windows) { return windows.pixels < windows.size; };
  return is_smaller(pooling.depth) || is_smaller(pooling.vertical) || is_smaller(pooling.horizontal);
}

template <size_t rank>
at::Tensor avg_pool(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                    bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {
  constexpr int64_t together = 1;
  Pool pool;
  const char* reason = reason_for_aten(x);
  at::Tensor dense = x;
  if (!reason && rank == 3) dense = x.contiguous();  // as aten
  if (!reason) reason = plan(dense, rank, {kernel_size, stride, padding, together, ceil_mode}, pool);
  if (!reason && divisor_override.value_or(1) <= 0) reason = "it divides by no positive number";
  if (!reason && rank == 3 && is_smaller_than_a_window(pool.pooling)) reason = "its input is smaller than a window";
  if (reason) {
    const LeftToAten left(reason, "ipex::avg_pool", rank, "d");
    const auto of_aten = rank == 2 ? at::avg_pool2d : at::avg_pool3d;
    return of_aten(x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override);
  }
  pool.pooling.counts_padding = count_include_pad;
  pool.pooling.divisor = divisor_override.value_or(0);
  return run(dense, pool, kernels().pooling.mean_pool_row);
}

// Of images of one row, as in aten.
at::Tensor avg_pool1d(const at::Tensor& x, at::IntArrayRef kernel_size, at::IntArrayRef stride, at::IntArrayRef padding,
                      bool ceil_mode, bool count_include_pad) {
  const at::IntArrayRef steps = stride.empty() ? kernel_size : stride;
  if (x.dim() != 3 || kernel_size.size() != 1 || steps.size() != 1 || padding.size() != 1) {
    const LeftToAten left("its input has no batch, or its windows another rank", "ipex::avg_pool1d");
    return at::avg_pool1d(x, kernel_size, stride, padding, ceil_mode, count_include_pad);
  }
  return avg_pool<2>(x.unsqueeze(2), {1, kernel_size[0]}, {1, steps[0]}, {0, padding[0]}, ceil_mode, count_include_pad,
                     std::nullopt)
      .squeeze(2);
}

// In blocks of channels, so that one image is enough for all threads.
void average_bytes(const at::Tensor& x, const Affine& affine, float* to) {
  constexpr int64_t channels_of_a_block = 64;
  const int64_t channels = x.size(1), pixels = x.size(2) * x.size(3);
  const int64_t blocks = at::divup(channels, channels_of_a_block), pieces = x.size(0) * blocks;
  const uint8_t* from = x.const_data_ptr<uint8_t>();
  parallel_for(pieces, grain_of(pieces, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t image = i / blocks, first = i % blocks * channels_of_a_block;
      kernels().pooling.average_bytes(from + image * pixels * channels + first, pixels, channels,
                                      std::min(channels_of_a_block, channels - first), static_cast<float>(affine.scale),
                                      static_cast<float>(affine.zero_point), to + image * channels + first);
    }
  });
}

// Of each image a pixel with the averages of its channels. With an affine the image is one of 8-bit numbers.
at::Tensor average(const at::Tensor& x, at::MemoryFormat format, bool keepdim, const std::optional<Affine>& affine) {
  at::DimVector sizes{x.size(0), x.size(1)};
  if (keepdim) sizes.insert(sizes.end(), {1, 1});
  const at::Tensor y = empty_result(sizes, x.options().dtype(at::kFloat).memory_format(format));
  float* to = y.mutable_data_ptr<float>();
  affine ? average_bytes(x, *affine, to) : average_images(x, to);
  return y;
}

const char* reason_against_average(const at::Tensor& x, const std::optional<Affine>& affine) {
  if (const char* reason = reason_for_images(x, affine.has_value())) return reason;
  const bool is_large = x.size(2) * x.size(3) > PoolingKernels::most_pixels;
  return affine && is_large ? "the sum of so many 8-bit numbers may not fit" : nullptr;
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& x, at::IntArrayRef output_size, const std::optional<Affine>& affine) {
  const char* reason = reason_against_average(x, affine);
  if (!reason && output_size != at::IntArrayRef{1, 1}) reason = "its result is not one pixel";
  if (reason) {
    const LeftToAten left(reason, "ipex::adaptive_avg_pool2d");
    return at::adaptive_avg_pool2d(affine ? dequantize(x, *affine) : x, output_size);
  }
  return average(x, at::MemoryFormat::ChannelsLast, /*keepdim=*/true, affine);
}

at::Tensor mean(const at::Tensor& x, at::IntArrayRef dim, bool keepdim, const std::optional<Affine>& affine) {
  const char* reason = reason_against_average(x, affine);
  const bool are_of_images = dim == at::IntArrayRef{2, 3} || dim == at::IntArrayRef{-2, -1} ||
                             dim == at::IntArrayRef{3, 2} || dim == at::IntArrayRef{-1, -2};
  if (!reason && !are_of_images) reason = "it does not average whole images";
  if (reason) {
    const LeftToAten left(reason, "ipex::mean");
    return at::mean(affine ? dequantize(x, *affine) : x, dim, keepdim);
  }
  return average(x, at::MemoryFormat::Contiguous, keepdim, affine);  // so it is in eager
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(
      m,
      "max_pool2d(Tensor x, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> Tensor",
      max_pool<2>);
  define(
      m,
      "max_pool3d(Tensor x, int[] kernel_size, int[] stride, int[] padding, int[] dilation, bool ceil_mode) -> Tensor",
      max_pool<3>);
  define(m,
         "avg_pool2d(Tensor x, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad, "
         "int? divisor_override) -> Tensor",
         avg_pool<2>);
  define(m,
         "avg_pool3d(Tensor x, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad, "
         "int? divisor_override) -> Tensor",
         avg_pool<3>);
  define(
      m,
      "avg_pool1d(Tensor x, int[] kernel_size, int[] stride, int[] padding, bool ceil_mode, bool count_include_pad) -> "
      "Tensor",
      avg_pool1d);
  define(m, "adaptive_avg_pool2d(Tensor x, int[] output_size, float[] affines=[]) -> Tensor",
         [](const at::Tensor& x, at::IntArrayRef output_size, const std::vector<double>& affines) {
           return adaptive_avg_pool2d(x, output_size, affine_of("ipex::adaptive_avg_pool2d", affines));
         });
  define(m, "mean(Tensor x, int[] dim, bool keepdim=True, float[] affines=[]) -> Tensor",
         [](const at::Tensor& x, at::IntArrayRef dim, bool keepdim, const std::vector<double>& affines) {
           return mean(x, dim, keepdim, affine_of("ipex::mean", affines));
         });
}

}  // namespace

bool can_average(const at::Tensor& images) { return !reason_against_average(images, std::nullopt); }

// In strips of rows, so that a thread sums up rows that it wrote (decision 0031). How many there are hangs on the image alone,
// and so does the sum.
void average_images(const at::Tensor& x, float* to) {
  constexpr int64_t least_rows = 4, most_strips = 16;
  const int64_t images = x.size(0), channels = x.size(1), height = x.size(2), image_width = x.size(3);
  const int64_t rows = std::max(least_rows, at::divup(height, most_strips)), strips = at::divup(height, rows);
  const at::Tensor memory = scratch(static_cast<int64_t>(sizeof(float)) * images * strips * channels);
  auto* const sums = static_cast<float*>(memory.data_ptr());
  const float* from = x.const_data_ptr<float>();
  const PoolingKernels& kernels = runtime::kernels().pooling;
  const int64_t pieces = images * strips;
  parallel_for(pieces, grain_of(pieces, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % strips * rows, count = std::min(rows, height - first);
      const float* strip = from + (i / strips * height + first) * image_width * channels;
      kernels.sum_rows(strip, count, image_width, channels, sums + i * channels);
    }
  });
  for (int64_t i = 0; i < images; ++i) {
    kernels.average_of_sums(sums + i * strips * channels, strips, height * image_width, channels, to + i * channels);
  }
}

at::Tensor averages_as_pixels(const at::Tensor& images, at::IntArrayRef dim) {
  return mean(images, dim, /*keepdim=*/true, std::nullopt);
}

}  // namespace ipex::runtime
