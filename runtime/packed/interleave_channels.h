// Images channels-last. aten copies those of few channels, as most models get, element by element.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// The batched image as contiguous_result gives it in this format, which is channels-last.
at::Tensor channels_last_result(const at::Tensor& image, at::MemoryFormat format);

}  // namespace ipex::runtime
