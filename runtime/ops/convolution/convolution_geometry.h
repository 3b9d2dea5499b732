// The numbers of a convolution, and what follows from them: what float32, 16-bit and 8-bit convolutions share.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <vector>

namespace ipex::runtime {

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

  // Throws, naming `where`, for numbers that no convolution has: what is computed from the others must not overflow.
  const ConvolutionGeometry& checked(const char* where) const;

  // Padding besides, as F.pad has it: whether it is padding that a convolution has, and the same convolution with it.
  bool can_pad(c10::IntArrayRef widths) const;
  ConvolutionGeometry padded(c10::IntArrayRef widths) const;

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
