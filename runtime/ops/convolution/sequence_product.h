// A convolution of a sequence as a product. Where a sequence lies channels-last, each of its windows is a run of memory, and
// the windows are rows that overlap:
//
//   a0 a1 a2 a3 a4 ..      three taps, every second place: rows (a0 a1 a2), (a2 a3 a4), ..
//
// So the kernels for linears convolve, and nothing is copied but a sequence that is padded. With AMX they are half as fast
// again as oneDNN's for convolutions, which know no tiles of floats; without it they are no faster.
#pragma once

#include "ops/convolution/convolution_geometry.h"
#include "ops/product/product.h"

namespace ipex::runtime {

// Whether windows are runs of more than one place.
bool sees_runs(const ConvolutionGeometry& geometry, at::IntArrayRef weight);

// How many windows are the rows of one product: those of all images of such sizes, or of one.
int64_t windows_at_once(const ConvolutionGeometry& geometry, at::IntArrayRef image, at::IntArrayRef weight);

// The image, one row high, dense and channels-last, with zeros at its ends where the convolution pads it.
at::Tensor with_padding_written_out(const at::Tensor& image, const ConvolutionGeometry& geometry);

// result = steps(windows . panels). `image` is what with_padding_written_out gives, `result` dense and channels-last.
void multiply_windows(const at::Tensor& image, int64_t taps, int64_t stride, const Panels& panels,
                      const WeightTiles& tiles, const ElementwiseSteps& steps, const at::Tensor& result);

}  // namespace ipex::runtime
