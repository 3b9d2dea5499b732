// Convolutions by Winograd's way: see kernels/winograd.h, and docs/decisions/0012-winograd-convolutions.md for where it
// is taken and why.
#pragma once

#include <ATen/core/Tensor.h>

#include "aot/stored_forms.h"
#include "kernels/elementwise.h"

namespace ipex::runtime {

// A transformed weight, four times as large as the plain one.
class Winograd {
 public:
  // `weight` gives one of [columns, channels, 3, 3] of float32, with numbers of channels that the kernel has. It is asked
  // where `stored` does not have the transformed one.
  Winograd(c10::function_ref<at::Tensor()> weight, int64_t channels, int64_t columns, const StoredForms& stored);

  // Whether the kernel has these numbers of channels.
  static bool has(int64_t channels, int64_t columns);
  // Whether an image of so many results is worth transforming the weight: once, and keeping it, or for each call.
  static bool is_worth_it(int64_t channels, int64_t columns, at::IntArrayRef result_sizes, at::IntArrayRef dilation,
                          bool is_kept);

  // For dense channels-last tensors. `padding` is that of the top and the left. False when a sum is not finite: then `result`
  // is not what a sum of products gives.
  bool convolve(const at::Tensor& image, at::IntArrayRef padding, at::IntArrayRef dilation,
                const ElementwiseSteps& steps, const at::Tensor& result) const;

 private:
  at::Tensor transformed_;
};

}  // namespace ipex::runtime
