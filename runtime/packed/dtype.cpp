#include "packed/dtype.h"

#include <c10/util/Exception.h>

#include <algorithm>

#include "isa/isa.h"

namespace ipex::runtime {

bool is_packable(at::ScalarType dtype) { return std::ranges::find(packable_dtypes, dtype) != packable_dtypes.end(); }

std::string name_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kFloat:
      return "float32";
    case at::kBFloat16:
      return "bfloat16";
    case at::kHalf:
      return "float16";
    case at::kDouble:
      return "float64";
    case at::kChar:
      return "int8";
    case at::kByte:
      return "uint8";
    case at::kLong:
      return "int64";
    default:
      return c10::toString(dtype);
  }
}

dnnl::memory::data_type data_type_of(at::ScalarType dtype) {
  using enum dnnl::memory::data_type;
  return dtype == at::kBFloat16 ? bf16 : dtype == at::kHalf ? f16 : f32;
}

const char* reason_against_dtype(at::ScalarType dtype) {
  if (dtype == at::kBFloat16 && !isa::is_in_use(isa::Level::AVX512_BF16)) {
    return "this CPU has no bfloat16 instructions, or a cap forbids them";
  }
  if (dtype == at::kHalf && !isa::is_in_use(isa::Level::AVX512_FP16)) {
    return "this CPU has no float16 instructions, or a cap forbids them";
  }
  return nullptr;
}

bool is_faster_in_float(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return !isa::has_fast_avx512_bf16() && !isa::is_in_use(isa::Level::AMX);
  return dtype == at::kHalf && !isa::is_in_use(isa::Level::AMX_FP16);
}

}  // namespace ipex::runtime
