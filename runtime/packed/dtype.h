// The dtypes that packed weights may have, and that products on oneDNN are computed in: float32, bfloat16, float16.
#pragma once

#include <c10/core/ScalarType.h>

#include <string>

#include "onednn/dnnl.h"

namespace ipex::runtime {

bool is_packable(at::ScalarType dtype);

// "float32", "bfloat16", "float16".
std::string name_of(at::ScalarType dtype);

dnnl::memory::data_type data_type_of(at::ScalarType dtype);

// Why nothing is computed on oneDNN in this dtype: the CPU has no instructions for it, or a cap forbids them. Null where
// it has. Fixes the choice of instructions for the process.
const char* reason_against_dtype(at::ScalarType dtype);

// Warns, once per dtype and process, where there is such a reason.
void warn_if_slow(at::ScalarType dtype);

}  // namespace ipex::runtime
