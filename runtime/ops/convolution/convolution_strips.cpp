#include "ops/convolution/convolution_strips.h"

#include <ATen/Parallel.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <cstring>

#include "kernels/kernels.h"
#include "memory/scratch.h"

namespace ipex::runtime {
namespace {

// What of the second cache the rows between the layers may take.
constexpr int64_t elements_of_a_strip = 96 * 1024;

void multiply(const PixelLayer& layer, const float* pixels, int64_t count, int64_t depth, const ElementwiseSteps& steps,
              float* result) {
  const RowsProduct product{.rows = pixels,
                            .row_stride = depth,
                            .row_count = count,
                            .matrix = {NumberFormat::floats, layer.panels.data, depth},
                            .panel_columns = layer.panels.columns,
                            .panel_size = layer.panels.size,
                            .steps = steps,
                            .result = result,
                            .result_stride = steps.columns};
  kernels().many_rows.multiply(product, 0, count, 0, at::divup(steps.columns, layer.panels.columns));
}

// Rows of one image's result, by one thread, from top to bottom.
class Strips {
 public:
  Strips(const ConvolutionStrips& work, int64_t image)
      : work_(work),
        image_(work.image + image * work.height * work.width * work.image_channels),
        first_result_row_(image * work.result_height) {}

  // How many rows of the result are computed at a time.
  static int64_t rows_at_a_time(const ConvolutionStrips& work) {
    const int64_t held = (work.window_height - work.stride_down) * work.width;
    const int64_t a_row = work.stride_down * work.width + work.result_width;
    return std::clamp<int64_t>((elements_of_a_strip / work.channels - held) / a_row, 1, work.result_height);
  }

  static int64_t rows_between(const ConvolutionStrips& work) {
    return (rows_at_a_time(work) - 1) * work.stride_down + work.window_height;
  }

  static size_t scratch_bytes(const ConvolutionStrips& work) {
    const int64_t expanded = rows_between(work) * work.width, convolved = rows_at_a_time(work) * work.result_width;
    return sizeof(float) * static_cast<size_t>((expanded + convolved) * work.channels);
  }

  void compute(int64_t first, int64_t last, float* memory) {
    expanded_ = memory;
    convolved_ = memory + rows_between(work_) * work_.width * work_.channels;
    for (int64_t row = first; row < last; row += rows_at_a_time(work_)) {
      compute_strip(row, std::min(last, row + rows_at_a_time(work_)));
    }
  }

 private:
  void compute_strip(int64_t first, int64_t last) {
    const int64_t top = std::max<int64_t>(0, first * work_.stride_down - work_.padding_top);
    const int64_t bottom =
        std::min(work_.height, (last - 1) * work_.stride_down - work_.padding_top + work_.window_height);
    const int64_t line = work_.width * work_.channels, result_line = work_.result_width * work_.channels;
    const float* rows = image_ + top * line;
    if (work_.expand) {
      expand(top, bottom);
      rows = expanded_;
    }
    float* convolved = work_.project ? convolved_ : work_.result + (first_result_row_ + first) * result_line;
    for (int64_t row = first; row < last; ++row) {
      const int64_t begin = row * work_.stride_down - work_.padding_top;
      const int64_t seen = std::max(begin, top), end = std::min(begin + work_.window_height, bottom);
      kernels().depthwise.convolve({.rows = rows + (seen - top) * line,
                                    .row_count = std::max<int64_t>(end - seen, 0),
                                    .first_window_row = seen - begin,
                                    .width = work_.width,
                                    .weights = work_.weights,
                                    .window_width = work_.window_width,
                                    .stride = work_.stride,
                                    .padding = work_.padding_left,
                                    .steps = work_.steps,
                                    .result = convolved + (row - first) * result_line,
                                    .result_width = work_.result_width});
    }
    if (work_.project) project(first, last);
  }

  // Those from `top` to `bottom` lie in the scratch memory then; what the strip before has left there is moved.
  void expand(int64_t top, int64_t bottom) {
    const int64_t line = work_.width * work_.channels, image_line = work_.width * work_.image_channels;
    const int64_t kept = std::max<int64_t>(0, held_bottom_ - top);
    if (kept > 0) std::memmove(expanded_, expanded_ + (top - held_top_) * line, sizeof(float) * kept * line);
    multiply(*work_.expand, image_ + (top + kept) * image_line, (bottom - top - kept) * work_.width,
             work_.image_channels, work_.expand->steps, expanded_ + kept * line);
    held_top_ = top;
    held_bottom_ = bottom;
  }

  void project(int64_t first, int64_t last) {
    ElementwiseSteps steps = work_.project->steps;
    const int64_t place = (first_result_row_ + first) * work_.result_width * steps.columns;
    // Operands of the result's shape begin where this part of the result does.
    c10::SmallVector<ElementwiseStep, 4> own(steps.first, steps.first + steps.count);
    for (ElementwiseStep& step : own) {
      if (step.operand && step.spread == OperandSpread::full) step.operand += place;
    }
    steps.first = own.data();
    multiply(*work_.project, convolved_, (last - first) * work_.result_width, work_.channels, steps,
             work_.result + place);
  }

  const ConvolutionStrips& work_;
  const float* image_;
  int64_t first_result_row_;
  float *expanded_ = nullptr, *convolved_ = nullptr;
  int64_t held_top_ = 0, held_bottom_ = 0;  // rows of the image that are expanded
};

}  // namespace

void convolve(const ConvolutionStrips& work) {
  const int64_t height = work.result_height;
  at::parallel_for(0, work.images * height, /*grain_size=*/1, [&](int64_t first, int64_t last) {
    const at::Tensor memory = scratch(Strips::scratch_bytes(work));
    while (first < last) {
      const int64_t image = first / height, end = std::min(last, (image + 1) * height);
      Strips(work, image).compute(first - image * height, end - image * height, static_cast<float*>(memory.data_ptr()));
      first = end;
    }
  });
}

}  // namespace ipex::runtime
