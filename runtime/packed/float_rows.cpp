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

at::Tensor in_floats(const at::Tensor& tensor) {
  const HalvesKernels* halves = halves_of(tensor.scalar_type());
  if (!halves) return tensor;
  const at::Tensor floats = empty_result(tensor.sizes(), tensor.options().dtype(at::kFloat));
  halves->widen(tensor.const_data_ptr(), tensor.numel(), floats.mutable_data_ptr<float>());
  return floats;
}

}  // namespace ipex::runtime
