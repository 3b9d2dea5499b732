#include "packed/float_rows.h"

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"

namespace ipex::runtime {

bool has_float_rows(const at::Tensor& tensor) {
  const at::ScalarType dtype = tensor.scalar_type();
  return (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf) && is_plain_cpu(tensor);
}

const HalvesKernels* halves_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return nullptr;
  const HalvesFormats& formats = kernels().halves;
  return dtype == at::kBFloat16 ? &formats.bfloat16 : &formats.float16;
}

std::optional<int64_t> row_stride(const at::Tensor& tensor, size_t dimensions) {
  const auto last = static_cast<int64_t>(dimensions);
  int64_t dense = 1;
  for (int64_t i = tensor.dim() - 1; i >= tensor.dim() - last; --i) {
    if (tensor.size(i) != 1 && tensor.stride(i) != dense) return std::nullopt;
    dense *= tensor.size(i);
  }
  int64_t count = 1, stride = dense;
  for (int64_t i = tensor.dim() - last - 1; i >= 0; --i) {
    if (tensor.size(i) == 1) continue;
    if (count == 1) stride = tensor.stride(i);
    if (tensor.stride(i) != count * stride) return std::nullopt;
    count *= tensor.size(i);
  }
  return stride;
}

at::Tensor in_floats(const at::Tensor& tensor) {
  const HalvesKernels* halves = halves_of(tensor.scalar_type());
  if (!halves) return tensor;
  const at::Tensor floats = empty_result(tensor.sizes(), tensor.options().dtype(at::kFloat));
  halves->widen(tensor.const_data_ptr(), tensor.numel(), floats.mutable_data_ptr<float>());
  return floats;
}

}  // namespace ipex::runtime
