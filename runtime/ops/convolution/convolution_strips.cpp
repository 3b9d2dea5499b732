#include "ops/convolution/convolution_strips.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "ops/product/product.h"
#include "packed/kernel_steps.h"
#include "packed/memory_format.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// What of the second cache the rows between the layers may take.
constexpr int64_t elements_of_a_strip = 96 * 1024;
constexpr int64_t least_rows_alone = 14;

template <typename Element>
PixelRows<Element> rows_of(Element* first, int64_t width, int64_t pixel_stride) {
  return {first, width, pixel_stride, width * pixel_stride};
}

struct ResultRows {
  float* first;
  int64_t stride;
};

void multiply(const InputRows& rows, int64_t depth, const PixelLayer& layer, const ElementwiseSteps& steps,
              const ResultRows& result) {
  RowsProduct product = product_of(rows, depth, layer.panels, steps, result.first);
  product.result_stride = result.stride;
  kernels().many_rows.multiply(product, 0, rows.count, 0, at::divup(steps.columns, layer.panels.columns));
}

// Between the layers a pixel begins at a line of memory, however many channels it has.
int64_t floats_between(const ConvolutionStrips& work) {
  constexpr int64_t floats_of_a_line = 16;
  return at::divup(work.channels, floats_of_a_line) * floats_of_a_line;
}

// How many rows of the image a window spans.
int64_t reach_down(const ConvolutionStrips& work) { return work.dilation_down * (work.window_height - 1) + 1; }

struct Stretch {
  int64_t first, last;
};

// Rows of one image's result, by one thread, from top to bottom; some channels of them where there is one layer only.
class Strips {
 public:
  Strips(const ConvolutionStrips& work, int64_t image, Stretch channels)
      : work_(work),
        channels_(channels),
        image_(work.image + image * work.height * work.width * work.pixel_stride),
        first_result_row_(image * work.result_height) {}

  // How many rows of the result are computed at a time.
  static int64_t rows_at_a_time(const ConvolutionStrips& work) {
    // One layer keeps no rows from strip to strip: windows that the cache does not hold see more of them at once.
    const int64_t least = work.expand || work.project ? 1 : std::min(least_rows_alone, work.result_height);
    const int64_t held = (reach_down(work) - work.stride_down) * work.width;
    const int64_t a_row = work.stride_down * work.width + work.result_width;
    return std::clamp((elements_of_a_strip / work.channels - held) / a_row, least, work.result_height);
  }

  static int64_t rows_between(const ConvolutionStrips& work) {
    return (rows_at_a_time(work) - 1) * work.stride_down + reach_down(work);
  }

  static size_t scratch_bytes(const ConvolutionStrips& work) {
    const int64_t expanded = work.expand ? rows_between(work) * work.width : 0,
                  convolved = work.project ? rows_at_a_time(work) * work.result_width : 0;
    return sizeof(float) * static_cast<size_t>((expanded + convolved) * floats_between(work));
  }

  void compute(Stretch rows, float* memory) {
    convolved_ = memory;
    expanded_ = memory + (work_.project ? rows_at_a_time(work_) * work_.result_width * floats_between(work_) : 0);
    for (int64_t row = rows.first; row < rows.last; row += rows_at_a_time(work_)) {
      compute_strip(row, std::min(rows.last, row + rows_at_a_time(work_)));
    }
  }

 private:
  void compute_strip(int64_t first, int64_t last) {
    const int64_t top = std::max<int64_t>(0, first * work_.stride_down - work_.padding_top);
    const int64_t bottom =
        std::min(work_.height, (last - 1) * work_.stride_down - work_.padding_top + reach_down(work_));
    if (work_.expand) expand(top, bottom);
    const int64_t between = floats_between(work_), result_row = first_result_row_ + first;
    const auto image = work_.expand
                           ? rows_of<const float>(expanded_, work_.width, between)
                           : rows_of(image_ + top * work_.width * work_.pixel_stride, work_.width, work_.pixel_stride);
    const auto result = work_.project ? rows_of(convolved_, work_.result_width, between)
                                      : rows_of(work_.result + result_row * work_.result_width * work_.channels,
                                                work_.result_width, work_.channels);
    const DepthwiseWork depthwise{work_, image, top, bottom, result, first, result_row * work_.result_width};
    kernels().depthwise.convolve(depthwise, first, last, channels_.first, channels_.last);
    if (work_.project) project(first, last);
  }

  // Those from `top` to `bottom` lie in the scratch memory then; what the strip before has left there is moved.
  void expand(int64_t top, int64_t bottom) {
    const int64_t line = work_.width * floats_between(work_), image_line = work_.width * work_.pixel_stride;
    const int64_t kept = std::max<int64_t>(0, held_bottom_ - top);
    if (kept > 0) std::memmove(expanded_, expanded_ + (top - held_top_) * line, sizeof(float) * kept * line);
    multiply({image_ + (top + kept) * image_line, (bottom - top - kept) * work_.width, work_.pixel_stride},
             work_.image_channels, *work_.expand, work_.expand->steps,
             {expanded_ + kept * line, floats_between(work_)});
    held_top_ = top;
    held_bottom_ = bottom;
  }

  void project(int64_t first, int64_t last) {
    const int64_t columns = work_.project->steps.columns,
                  place = (first_result_row_ + first) * work_.result_width * columns;
    KernelSteps::Room room;
    multiply({convolved_, (last - first) * work_.result_width, floats_between(work_)}, work_.channels, *work_.project,
             later_steps(work_.project->steps, place, room), {work_.result + place, columns});
  }

  const ConvolutionStrips& work_;
  Stretch channels_;
  const float* image_;
  int64_t first_result_row_;
  float *expanded_ = nullptr, *convolved_ = nullptr;
  int64_t held_top_ = 0, held_bottom_ = 0;  // rows of the image that are expanded
};

struct StripParts {
  int64_t rows, channels;
};

// Those that the threads are through with first: with each, rows of the image are expanded that its neighbour expands too. In products.
int64_t row_parts_of_a_chain(const ConvolutionStrips& work) {
  constexpr int64_t most_parts_of_a_thread = 4, products_of_a_tap = 4;
  const int64_t rows = work.images * work.result_height, taps = work.window_height * work.window_width,
                threads = thread_count();
  const int64_t of_a_line = work.expand ? work.width * work.image_channels * work.channels : 0,
                columns = work.project ? work.project->steps.columns : 0;
  const int64_t of_a_row =
      work.stride_down * of_a_line + work.result_width * work.channels * (taps * products_of_a_tap + columns);
  const int64_t of_a_part = (reach_down(work) - work.stride_down) * of_a_line;
  const auto time_of = [&](int64_t parts) {
    return at::divup(parts, threads) * (at::divup(rows, parts) * of_a_row + (parts > 1 ? of_a_part : 0));
  };
  int64_t best = 1;
  for (int64_t parts = 2; parts <= std::min(rows, most_parts_of_a_thread * threads); ++parts) {
    if (time_of(parts) <= time_of(best)) best = parts;
  }
  return best;
}

// Each thread takes one. Channels are cut where there are too few rows for equal shares, and one layer only; a thread then
// reads more of what others have written.
StripParts parts_of(const ConvolutionStrips& work, int64_t vectors, int64_t threads) {
  constexpr int64_t products_worth_waking = 1 << 18;
  const int64_t rows = work.images * work.result_height, taps = work.window_height * work.window_width;
  if (work.expand || work.project) return {row_parts_of_a_chain(work), 1};
  if (rows * work.result_width * work.channels * taps <= products_worth_waking) return {1, 1};
  StripParts best{1, 1};
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t channels = 1; channels <= std::min(threads, vectors); ++channels) {
    const int64_t row_parts = std::min(threads / channels, rows);
    const int64_t share = at::divup(rows, row_parts) * at::divup(vectors, channels);
    const int64_t cost = channels == 1 ? 4 * share : 5 * share;
    if (cost < least) {
      best = {row_parts, channels};
      least = cost;
    }
  }
  return best;
}

}  // namespace

ConvolutionStrips depthwise_strips(const at::Tensor& image, const at::Tensor& weight, at::IntArrayRef stride,
                                   at::IntArrayRef dilation, at::IntArrayRef padding, const ElementwiseSteps& steps,
                                   const at::Tensor& result) {
  const DepthwiseLayer layer{.weights = weight.const_data_ptr<float>(),
                             .window_height = weight.size(0),
                             .window_width = weight.size(1),
                             .stride_down = stride[0],
                             .stride = stride[1],
                             .dilation_down = dilation[0],
                             .dilation = dilation[1],
                             .padding_top = padding[0],
                             .padding_left = padding[1],
                             .steps = steps};
  return {layer,
          image.const_data_ptr<float>(),
          image.size(0),
          image.size(2),
          image.size(3),
          image.size(1),
          pixel_stride(image),
          /*expand=*/std::nullopt,
          weight.size(2),
          /*project=*/std::nullopt,
          result.mutable_data_ptr<float>(),
          result.size(2),
          result.size(3)};
}

void convolve(const ConvolutionStrips& work) {
  const int64_t height = work.result_height, rows = work.images * height, width = kernels().depthwise.width;
  const int64_t vectors = at::divup(work.channels, width);
  const StripParts parts = parts_of(work, vectors, part_count());
  parallel_for(parts.rows * parts.channels, /*grain_size=*/1, [&](int64_t first_part, int64_t last_part) {
    const at::Tensor memory = scratch(Strips::scratch_bytes(work));
    for (int64_t i = first_part; i < last_part; ++i) {
      const auto vector = [&](int64_t part) {
        return std::min(work.channels, vectors * part / parts.channels * width);
      };
      const Stretch channels{vector(i % parts.channels), vector(i % parts.channels + 1)};
      const int64_t row_part = i / parts.channels, last = rows * (row_part + 1) / parts.rows;
      for (int64_t first = rows * row_part / parts.rows; first < last;) {
        const int64_t image = first / height, end = std::min(last, (image + 1) * height);
        Strips(work, image, channels)
            .compute({first - image * height, end - image * height}, static_cast<float*>(memory.data_ptr()));
        first = end;
      }
    }
  });
}

}  // namespace ipex::runtime
