// Elementwise ops whose result is summed, in one pass over memory: products that are summed next need not be stored.
//
//   ipex::elementwise_sum(inputs, steps, dim, keepdim) -> aten::sum(ipex::elementwise(inputs, steps), dim, keepdim)
//   ipex::elementwise_mean(inputs, steps, dim, keepdim)   the same with aten::mean
//   ipex::elementwise_sum.cast, ipex::elementwise_mean.cast(.., restored)
//                                                         the same, of inputs of which some are ipex::restore_precision
//
// It takes what the kernels of ipex::elementwise take. Numbers of 16 bits are rounded after each step and summed as floats, as
// in eager. All else is done in two passes; a profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/elementwise/kernel_call.h"
#include "packed/call_conditions.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

Tensor summed(at::TensorList given, const c10::List<std::string>& texts, at::IntArrayRef dim, bool keepdim,
              bool is_mean, at::ArrayRef<bool> restored) {
  const auto read = read_steps(texts, static_cast<int64_t>(given.size()));
  const ValueNumbers last = last_of(given, read->steps);
  KernelCall call(given, read->steps, last, restored);
  std::vector<Tensor> terms;
  if (!call.reason) {
    const auto dimensions = static_cast<size_t>(call.layouts.back().dimensions);
    const Summed over{at::dim_list_to_bitset(dim, dimensions), keepdim, is_mean};
    const Tensor y = sum_of_steps(call.inputs, call.dtype, call.steps(), call.layouts, over);
    if (y.defined()) return y;
    call.reason = "it has many inputs and steps, or fewer sums than there are threads";
    terms = run_steps(call.inputs, call.dtype, call.steps(), call.layouts, last, {}, {});
  }
  const LeftToAten left(call.reason, is_mean ? "ipex::elementwise_mean" : "ipex::elementwise_sum");
  if (terms.empty()) terms = in_aten(restored_inputs(given, restored), read->steps, last);
  return is_mean ? at::mean(terms[0], dim, keepdim) : at::sum(terms[0], dim, keepdim);
}

void define_both(torch::Library& m, const std::string& op, bool is_mean) {
  const std::string arguments = "(Tensor[] inputs, str[] steps, int[] dim, bool keepdim";
  define(m, op + arguments + ") -> Tensor",
         [is_mean](at::TensorList inputs, const c10::List<std::string>& steps, at::IntArrayRef dim, bool keepdim) {
           return summed(inputs, steps, dim, keepdim, is_mean, {});
         });
  define(m, op + ".cast" + arguments + ", bool[] restored) -> Tensor",
         [is_mean](at::TensorList inputs, const c10::List<std::string>& steps, at::IntArrayRef dim, bool keepdim,
                   const c10::List<bool>& flags) {
           return summed(inputs, steps, dim, keepdim, is_mean, flags_of(inputs, flags));
         });
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_both(m, "ipex::elementwise_sum", /*is_mean=*/false);
  define_both(m, "ipex::elementwise_mean", /*is_mean=*/true);
}

}  // namespace
}  // namespace ipex::runtime
