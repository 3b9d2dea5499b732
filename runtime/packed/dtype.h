// The dtypes that packed weights may have, and that products on oneDNN are computed in: float32, bfloat16, float16.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <string>

#include "onednn/dnnl.h"

namespace ipex::runtime {

constexpr std::array packable_dtypes{at::kFloat, at::kBFloat16, at::kHalf};
bool is_packable(at::ScalarType dtype);

// As torch names it in Python: "float32".
std::string name_of(at::ScalarType dtype);

dnnl::memory::data_type data_type_of(at::ScalarType dtype);

// Why nothing is computed on oneDNN in this dtype: the CPU has no instructions for it, or a cap forbids them. Null where
// it has. Fixes the choice of instructions for the process.
const char* reason_against_dtype(at::ScalarType dtype);

// Whether products of this dtype take this CPU longer than float32's, so that an op with a weight of it had better compute
// in float32, beside a copy of the weight: without AMX and fast products of pairs for bfloat16, and without AMX's for
// float16.
bool is_faster_in_float(at::ScalarType dtype);

}  // namespace ipex::runtime
