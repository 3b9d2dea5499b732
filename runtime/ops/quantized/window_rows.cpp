#include "ops/quantized/window_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "memory/scratch.h"
#include "threads/grain.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {

WindowRows::WindowRows(const ConvolutionGeometry& geometry, c10::IntArrayRef weight)
    : stride_(geometry.stride),
      begin_(geometry.begin),
      dilation_(geometry.dilation),
      taps_{weight[2], weight[3]},
      channels_(weight[1]),
      run_(are_runs_lines() ? taps_[1] * channels_ : channels_),
      run_depth_(bytes_of_whole_tiles(run_)),
      phases_(std::min(stride_[0], geometry.window(0, weight))) {}

at::Tensor WindowRows::codes(const at::Tensor& weight) const {
  const at::Tensor lines = weight.permute({0, 2, 3, 1}).reshape({weight.size(0), runs(), run_});
  return at::constant_pad_nd(lines, {0, run_depth_ - run_}).flatten(1).contiguous();
}

std::string WindowRows::layout() const { return c10::str(", ", runs(), " runs of ", run_, " in ", run_depth_); }

WindowRows::Plan WindowRows::plan(const at::Tensor& source, const at::Tensor& result) const {
  const int64_t width = result.size(3), row_width = width + (taps_[1] - 1) * dilation_[1] / stride_[1];
  Plan plan;
  plan.height = source.size(2);
  plan.width = source.size(3);
  plan.lines = result.size(2);
  plan.lines_of_a_phase = plan.lines + (taps_[0] - 1) * dilation_[0] / stride_[0];
  plan.line_pixels = row_width * stride_[1];
  plan.bytes = phases_ * plan.lines_of_a_phase * plan.line_pixels * channels_ + run_depth_ - run_;
  for (int64_t i = 0; i < runs(); ++i) {
    const int64_t y = (are_runs_lines() ? i : i / taps_[1]) * dilation_[0];
    const int64_t x = are_runs_lines() ? 0 : i % taps_[1] * dilation_[1];
    const int64_t line = y % stride_[0] * plan.lines_of_a_phase + y / stride_[0];
    plan.begins.push_back((line * plan.line_pixels + x) * channels_);
  }
  plan.runs = {plan.begins.data(), runs(), row_width, width};
  return plan;
}

void WindowRows::copy(const Plan& plan, const uint8_t* image, uint8_t zero, uint8_t* to) const {
  constexpr int64_t bytes_worth_a_thread = 1 << 16;
  const int64_t lines = phases_ * plan.lines_of_a_phase, line = plan.line_pixels * channels_;
  const int64_t before = std::min(begin_[1], plan.line_pixels);
  const int64_t count = std::min(plan.width, plan.line_pixels - before), behind = plan.line_pixels - before - count;
  parallel_for(lines, grain_of(lines, lines * line, bytes_worth_a_thread), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t y = i % plan.lines_of_a_phase * stride_[0] + i / plan.lines_of_a_phase - begin_[0];
      uint8_t* const here = to + i * line;
      if (y < 0 || y >= plan.height) {
        std::memset(here, zero, line);
      } else {
        std::memset(here, zero, before * channels_);
        std::memcpy(here + before * channels_, image + y * plan.width * channels_, count * channels_);
        std::memset(here + (before + count) * channels_, zero, behind * channels_);
      }
    }
  });
}

void WindowRows::multiply(const TiledRows& layer, const at::Tensor& source, uint8_t zero, const FusedPostOps& fused,
                          const at::Tensor& result) const {
  const Plan plan = this->plan(source, result);
  const int64_t stride = stride_[1] * channels_, rows = plan.lines * plan.runs.row_width;
  // The last one is a row of the result.
  const int64_t wanted = rows - (plan.runs.row_width - plan.runs.result_width);
  const auto* images = source.const_data_ptr<uint8_t>();
  const int64_t count = source.size(0), size = source.numel() / count;
  // Threads share images where all get as many, and else the rows of each.
  const bool shares_images = count % thread_count() == 0 || count >= 4 * thread_count();
  parallel_for(count, shares_images ? 1 : count, [&](int64_t first, int64_t last) {
    const at::Tensor memory = scratch(plan.bytes);
    auto* const lines = memory.mutable_data_ptr<uint8_t>();
    for (int64_t i = first; i < last; ++i) {
      copy(plan, images + i * size, zero, lines);
      layer.multiply({.first = lines - i * rows * stride,
                      .stride = stride,
                      .begin = i * rows,
                      .end = i * rows + wanted,
                      .runs = &plan.runs},
                     fused, result);
    }
  });
}

}  // namespace ipex::runtime
