// What a context expects of the tensors that it is made of, whether a prepack op or a file brings them: one check, one message.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

#include "packed/damaged.h"

namespace ipex::runtime {

// Stands for any size but 0.
constexpr int64_t any_size = -1;

// A tensor as messages show it: "float32 [8, 3]", or "none".
std::string text_of(const at::Tensor& tensor);

// Throws unless the tensor is one of plain CPU memory, all of it there, with one of these dtypes and with these sizes.
void expect_tensor(const char* op, std::string_view role, const at::Tensor& tensor, at::IntArrayRef sizes,
                   at::ArrayRef<at::ScalarType> dtypes = at::kFloat);
// The same of one that may be missing.
void expect_tensor_if_any(const char* op, std::string_view role, const at::Tensor& tensor, at::IntArrayRef sizes,
                          at::ArrayRef<at::ScalarType> dtypes = at::kFloat);

}  // namespace ipex::runtime
