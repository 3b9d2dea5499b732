// Convolutions by Winograd's way: see kernels/winograd.h, and docs/decisions/convolutions.md for where it
// is taken and why.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "aot/stored_forms.h"
#include "kernels/elementwise.h"

namespace ipex::runtime {

// Channels and columns of a group.
struct WinogradSize {
  int64_t groups, channels, columns;

  // Whether there is enough to multiply: else going from one basis into the other costs more than it saves.
  bool is_worth_it() const;
};

class Winograd {
 public:
  // How the weight is kept: transformed, four times as large as the plain one; or in the kernel's order, as large as the
  // plain one, to be transformed in each call.
  enum class Form { transformed, windows };

  // `weight` gives one of [groups * columns, channels, 3, 3] of float32. It is asked where `stored` does not have the form.
  Winograd(c10::function_ref<at::Tensor()> weight, const WinogradSize& size, Form form, const StoredForms& stored);

  // What an image of so many results is worth keeping. None where oneDNN's convolution is as fast, or needs less memory.
  static std::optional<Form> form_for(const WinogradSize& size, at::IntArrayRef result_sizes, at::IntArrayRef dilation);

  // For dense channels-last tensors. `padding` is that of the top and the left. False when a sum is not finite: then `result`
  // is not what a sum of products gives.
  bool convolve(const at::Tensor& image, at::IntArrayRef padding, at::IntArrayRef dilation,
                const ElementwiseSteps& steps, const at::Tensor& result) const;

 private:
  WinogradSize size_;
  Form form_;
  at::Tensor weight_;
};

}  // namespace ipex::runtime
