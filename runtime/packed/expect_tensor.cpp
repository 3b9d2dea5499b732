#include "packed/expect_tensor.h"

#include <c10/util/Exception.h>
#include <c10/util/irange.h>

#include <algorithm>

#include "packed/call_conditions.h"
#include "packed/dtype.h"

namespace ipex::runtime {
namespace {

bool has_sizes(const at::Tensor& tensor, at::IntArrayRef sizes) {
  const auto fits = [](int64_t size, int64_t expected) { return expected == any_size ? size > 0 : size == expected; };
  return std::equal(tensor.sizes().begin(), tensor.sizes().end(), sizes.begin(), sizes.end(), fits);
}

// "a, b or c"
std::string one_of(at::ArrayRef<at::ScalarType> dtypes) {
  std::string text = name_of(dtypes.front());
  for (const size_t i : c10::irange(size_t{1}, dtypes.size())) {
    text += (i + 1 == dtypes.size() ? " or " : ", ") + name_of(dtypes[i]);
  }
  return text;
}

std::string text_of_expected(at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t size : sizes)
    text += (text.empty() ? "" : ", ") + (size == any_size ? "any" : std::to_string(size));
  return "[" + text + "]";
}

}  // namespace

std::string text_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return "none";
  const std::string text = c10::str(name_of(tensor.scalar_type()), " ", tensor.sizes());
  return tensor.is_cpu() ? text : c10::str(text, " on ", tensor.device());
}

void expect_tensor(const char* op, std::string_view role, const at::Tensor& tensor, at::IntArrayRef sizes,
                   at::ArrayRef<at::ScalarType> dtypes) {
  const bool fits = tensor.defined() && has_sizes(tensor, sizes) &&
                    std::find(dtypes.begin(), dtypes.end(), tensor.scalar_type()) != dtypes.end() &&
                    is_plain_cpu(tensor) && has_all_its_memory(tensor);
  TORCH_CHECK(fits, op, ": expected ", role, " to be a plain CPU tensor of ", one_of(dtypes), " ",
              text_of_expected(sizes), ", got ", text_of(tensor), damaged);
}

void expect_tensor_if_any(const char* op, std::string_view role, const at::Tensor& tensor, at::IntArrayRef sizes,
                          at::ArrayRef<at::ScalarType> dtypes) {
  if (tensor.defined()) expect_tensor(op, role, tensor, sizes, dtypes);
}

}  // namespace ipex::runtime
