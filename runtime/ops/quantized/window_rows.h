// Windows of images of bytes as rows for tiles (kernels/byte_tiles.h), for convolutions that are neither transposed nor in groups.
//
// An image is copied with its padding. Where windows move by two lines, lines with even numbers come first and then the odd
// ones. So a line of a window is a run of neighbours, and windows lie at one distance, from one line of the result to the
// next too. Those that reach over the end of a line are multiplied like the others and dropped: 2 of 58 for 3x3 windows of 56
// pixels.
#pragma once

#include <string>
#include <vector>

#include "ops/convolution/convolution_geometry.h"
#include "ops/quantized/tiled_rows.h"

namespace ipex::runtime {

class WindowRows {
 public:
  // For a weight of these sizes.
  WindowRows(const ConvolutionGeometry& geometry, c10::IntArrayRef weight);

  // Bytes of a row.
  int64_t depth() const { return runs() * run_depth_; }
  // The weight as int8 [outputs, depth], with zeros where a run is filled up, and what that depends on beside the weight.
  at::Tensor codes(const at::Tensor& weight) const;
  std::string layout() const;

  // `source` and `result` are channels-last images. `zero` is what is padded with.
  void multiply(const TiledRows& layer, const at::Tensor& source, uint8_t zero, const FusedPostOps& fused,
                const at::Tensor& result) const;

 private:
  // For images of one size. A phase is every stride-th line.
  struct Plan {
    int64_t height, width;                         // of an image
    int64_t lines;                                 // of the result
    int64_t lines_of_a_phase, line_pixels, bytes;  // of the copy
    std::vector<int64_t> begins;
    RowRuns runs;
  };

  bool are_runs_lines() const { return dilation_[1] == 1; }
  int64_t runs() const { return are_runs_lines() ? taps_[0] : taps_[0] * taps_[1]; }
  Plan plan(const at::Tensor& source, const at::Tensor& result) const;
  void copy(const Plan& plan, const uint8_t* image, uint8_t zero, uint8_t* to) const;

  const std::vector<int64_t> stride_, begin_, dilation_, taps_;
  const int64_t channels_, run_, run_depth_;  // bytes of a run, and with what fills it up
  const int64_t phases_;                      // that windows read
};

}  // namespace ipex::runtime
