// The numbers of a convolution, and what follows from them: what float32, 16-bit and 8-bit convolutions share.
#pragma once

#include <algorithm>
#include <vector>

#include "packed/memory_format.h"
#include "packed/packed_op.h"

namespace ipex::runtime {

inline bool all_are(c10::IntArrayRef numbers, int64_t number) {
  return std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == number; });
}

// A dimension of a convolution whose outermost taps were left out: the first tap and their number, and what to pad with,
// less than 0 where the image is cut.
struct LiveTaps {
  int64_t begin, end, from, count;
};

// Of the kernel: two or three dimensions.
struct ConvolutionGeometry {
  int64_t spatial_rank;  // the model's, which may be 1
  std::vector<int64_t> stride, begin, end, dilation, output_padding;
  int64_t groups;
  bool transposed;
  // Whether some of the padding is that of an image: aten takes an image without pixels where it is padded before.
  bool pads_image = false;

  // As the arguments of a prepack op have it: one integer or one per dimension of the image, of `padding` also two. Throws,
  // naming `where`, where there are others. A 1-d one is 2-d here, of images one pixel high.
  static ConvolutionGeometry of(const char* where, const at::Tensor& weight, std::vector<int64_t> stride,
                                std::vector<int64_t> padding, std::vector<int64_t> dilation, int64_t groups,
                                bool transposed, std::vector<int64_t> output_padding);
  // As a saved context has it, or where it names no rank, as some of 2-d convolutions that are not transposed.
  static ConvolutionGeometry load(const char* where, const StateReader& reader, bool names_rank = true);
  Integers integers() const;

  // Throws, naming `where`, for numbers that no convolution has: what is computed from the others must not overflow.
  const ConvolutionGeometry& checked(const char* where) const;

  // Padding besides, as F.pad has it: whether it is padding that a convolution has, and the same convolution with it.
  bool can_pad(c10::IntArrayRef widths) const;
  ConvolutionGeometry padded(c10::IntArrayRef widths) const;

  // Why aten computes the convolution whatever the image. `keeps_layout`: the result has to lie as channels-last images do there.
  const char* reason_for_aten(bool keeps_layout) const;

  int64_t batch_rank() const { return spatial_rank + 2; }
  at::Tensor batched(const at::Tensor& image) const { return as_batched_image(image, spatial_rank); }
  at::DimVector batched_sizes(const at::Tensor& image) const;
  // Throws, naming `where`, for an image that this convolution with a weight of these sizes does not take.
  void check_image(const char* where, const at::Tensor& image, c10::IntArrayRef weight) const;
  // Of the result, which has a batch where the image has one.
  at::DimVector result_sizes(const at::Tensor& image, c10::IntArrayRef weight) const;

  // The following are for a weight of these sizes, and for a batched image.
  int64_t output_channels(c10::IntArrayRef weight) const { return transposed ? weight[1] * groups : weight[0]; }
  int64_t input_channels(c10::IntArrayRef weight) const { return transposed ? weight[0] : weight[1] * groups; }
  // How far a window reaches.
  int64_t window(size_t i, c10::IntArrayRef weight) const { return dilation[i] * (weight[2 + i] - 1) + 1; }
  std::vector<int64_t> result_sizes(c10::IntArrayRef image, c10::IntArrayRef weight) const;
  // Transposed, with windows that lie so far apart that brgemm may write to null, from some 4,096 on.
  bool spreads_far(c10::IntArrayRef weight) const;
  // There, where all pixels of a window may lie in the padding, and where a kernel that would move by more than one has no
  // room to: then brgemm reads or writes what it should not (oneDNN 3.7.2 and the one in torch; found by fuzzing).
  bool is_brgemm_at_fault(c10::IntArrayRef image, c10::IntArrayRef weight) const;
  // The same convolution, not transposed, without the taps at either end that meet padding alone, as those of a dilation
  // that is wider than the image do. Where all do, they stay.
  LiveTaps without_dead_taps(size_t i, c10::IntArrayRef image, c10::IntArrayRef weight) const;
};

}  // namespace ipex::runtime
