// Convolutions of images of few channels, as a network's first one is: see kernels/few_channels.h, and
// docs/decisions/convolutions.md for where it is taken and why.
#pragma once

#include <ATen/core/Tensor.h>

#include "aot/stored_forms.h"
#include "kernels/elementwise.h"
#include "ops/convolution/convolution_geometry.h"

namespace ipex::runtime {

class FewChannels {
 public:
  // Whether such a convolution in float32 gains by it. `weight` are the weight's sizes.
  static bool gains(const ConvolutionGeometry& geometry, at::IntArrayRef weight);

  // `weight` gives one of these sizes. It is asked where `stored` does not have the kernel's form.
  FewChannels(c10::function_ref<at::Tensor()> weight, at::IntArrayRef sizes, const StoredForms& stored);

  // The image is batched and has any strides, the result is dense and channels-last.
  void convolve(const at::Tensor& image, const ConvolutionGeometry& geometry, const ElementwiseSteps& steps,
                const at::Tensor& result) const;

 private:
  at::Tensor weight_;  // [vectors of output channels, input channels, window's rows, window's columns, lanes]
};

}  // namespace ipex::runtime
