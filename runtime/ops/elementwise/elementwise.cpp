// Elementwise ops that follow one another, in one pass over memory.
//
//   ipex::elementwise(inputs, steps, ports, in_one_piece, outermost) -> y
//     inputs = [x, w], steps = ["mul 0 1", "add_number(1.0) 2", "silu 3"]: y = silu(x * w + 1). See steps.h.
//     With in_one_piece y is contiguous where every input is read a row at a time for that; with `outermost` this dimension
//     of it is outermost in memory where eager's is contiguous.
//   ipex::elementwise.several(inputs, steps, results, ports) -> the values with these numbers: [4, 5] is x * w + 1 and y.
//   ipex::elementwise.sum(inputs, steps, dim, keepdim, is_mean, ports) -> aten::sum(y, dim, keepdim), or aten::mean: products
//     that are summed next need not be stored.
//
// The ports say what is done with inputs before the steps and with results after them, in the same pass over memory:
//
//   restored    of each input, whether it is cast by ipex::restore_precision
//   affines     of each input the scale and the zero point of its 8-bit numbers, a scale of 0 for what is none
//   dtype       to which ipex::lower_precision casts the results
//   rounded     of each result the scale and the zero point with which it becomes 8-bit numbers, a scale of 0 for none
//
// The kernels take float32, bfloat16 and float16, and bool for what chooses among them, in any layout and broadcast in any
// way. Numbers of 16 bits are rounded after each step, as eager rounds them, and summed as floats. The result has the strides
// that eager would give it, but for the two whose readers want it otherwise. All else is computed by aten, step by step; a
// profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/elementwise/kernel_call.h"
#include "ops/elementwise/plan.h"
#include "packed/call_conditions.h"
#include "packed/damaged.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using Texts = c10::List<std::string>;
using Flags = c10::List<bool>;
using Numbers = c10::List<double>;

constexpr const char* name = "ipex::elementwise";

OptionalAffines affines_of(const Numbers& numbers, size_t count, const char* of_what) {
  if (numbers.empty()) return {};
  OptionalAffines affines = runtime::affines_of(name, numbers.vec());
  TORCH_CHECK(affines.size() == count, name, ": expected a scale for each of ", count, of_what, affines.size(),
              damaged);
  return affines;
}

// Out of a graph or a file.
Ports ports_of(at::TensorList inputs, size_t results, const Flags& restored, const Numbers& affines,
               std::optional<at::ScalarType> dtype, const Numbers& rounded) {
  Ports ports{.affines = affines_of(affines, inputs.size(), " inputs, got "),
              .dtype = lowered_to(name, dtype).dtype,
              .rounded = affines_of(rounded, results, " results, got ")};
  TORCH_CHECK(restored.empty() || restored.size() == inputs.size(), name, ": expected to be told of ", inputs.size(),
              " inputs whether they are cast, got ", restored.size(), damaged);
  for (const bool is_restored : restored) ports.restored.push_back(is_restored);
  return ports;
}

// The inputs as the steps take them.
std::vector<Tensor> floats_of(at::TensorList given, const Ports& ports) {
  std::vector<Tensor> floats = given.vec();
  for (size_t i = 0; i < floats.size(); ++i) {
    if (const auto affine = ports.affine(i)) floats[i] = dequantize(floats[i], *affine);
    if (ports.restores(i)) floats[i] = restore_precision(floats[i]);
  }
  return floats;
}

// Whether elements side by side in a new contiguous result are so in each input, or one for all.
bool takes_rows(const Layout& result, at::ArrayRef<Layout> inputs) {
  int64_t inner = result.dimensions - 1;
  while (inner > 0 && result.sizes[static_cast<size_t>(inner)] == 1) --inner;
  return std::all_of(inputs.begin(), inputs.end(), [&](const Layout& input) {
    const int64_t own = inner - (result.dimensions - input.dimensions);
    return own < 0 || input.sizes[static_cast<size_t>(own)] == 1 || input.strides[static_cast<size_t>(own)] == 1;
  });
}

// How a reader wants the result, where it is another way than eager's.
struct Wish {
  bool in_one_piece = false;
  std::optional<int64_t> outermost = {};

  // Only what is contiguous in eager gets another dimension outermost: so are its slices in the order of their dimensions,
  // which is all that their readers see. Not the innermost one: the op would pick elements one by one for it.
  void lay_out(Layout& result, at::ArrayRef<Layout> inputs) const {
    if (in_one_piece && takes_rows(result, inputs)) result.lay_out_as_new();
    const int64_t own = outermost.value_or(result.dimensions) + (outermost.value_or(0) < 0 ? result.dimensions : 0);
    if (result.is_as_new() && own >= 0 && own + 1 < result.dimensions) result.lay_out_with_outermost(own);
  }
};

// The values that `results` names.
std::vector<Tensor> values(at::TensorList given, const NamedSteps& steps, const ValueNumbers& results,
                           const Ports& ports, const Wish& wish = {}) {
  KernelCall call(given, steps, results, ports);
  if (!call.reason) {
    wish.lay_out(call.layouts.back(), at::ArrayRef<Layout>(call.layouts).slice(0, given.size()));
    auto found = run_steps(call.inputs, call.dtype, call.steps(), call.layouts, results, ports);
    if (!found.empty()) return found;
    call.reason = "it has many inputs and steps";
  }
  std::vector<Tensor> found;
  if (ports.are_none()) {
    const LeftToAten left(call.reason, name);
    found = in_aten(given, steps, results);
  } else {
    found = values(floats_of(given, ports), steps, results, {}, wish);
  }
  for (size_t i = 0; i < found.size(); ++i) found[i] = stored(found[i], ports.stored_as(i));
  return found;
}

Tensor elementwise(at::TensorList given, const Texts& texts, const Flags& restored, const Numbers& affines,
                   std::optional<at::ScalarType> dtype, const Numbers& rounded, bool in_one_piece,
                   std::optional<int64_t> outermost) {
  const auto read = read_steps(texts, static_cast<int64_t>(given.size()));
  const Ports ports = ports_of(given, 1, restored, affines, dtype, rounded);
  return values(given, read->steps, last_of(given, read->steps), ports, {in_one_piece, outermost})[0];
}

std::vector<Tensor> elementwise_of_several(at::TensorList given, const Texts& texts, at::IntArrayRef named,
                                           const Flags& restored, const Numbers& affines,
                                           std::optional<at::ScalarType> dtype, const Numbers& rounded) {
  const auto inputs = static_cast<int64_t>(given.size()), count = inputs + static_cast<int64_t>(texts.size());
  const auto read = read_steps(texts, inputs);
  ValueNumbers results;
  for (const int64_t value : named) {
    TORCH_CHECK(value >= inputs && value < count && (results.empty() || value > static_cast<int64_t>(results.back())),
                name, ": expected results of steps, in order, got value ", value, damaged);
    results.push_back(static_cast<size_t>(value));
  }
  return values(given, read->steps, results, ports_of(given, results.size(), restored, affines, dtype, rounded));
}

Tensor sum(at::TensorList given, const Texts& texts, at::IntArrayRef dim, bool keepdim, bool is_mean,
           const Flags& restored, const Numbers& affines, std::optional<at::ScalarType> dtype, const Numbers& rounded) {
  const auto read = read_steps(texts, static_cast<int64_t>(given.size()));
  const ValueNumbers last = last_of(given, read->steps);
  const Ports ports = ports_of(given, 1, restored, affines, dtype, rounded);
  Ports of_inputs = ports;
  of_inputs.dtype.reset();
  of_inputs.rounded.clear();
  KernelCall call(given, read->steps, last, of_inputs);
  if (!call.reason && dim.empty()) call.reason = "it does not say which dimensions";
  if (!call.reason) {
    const auto dimensions = static_cast<size_t>(call.layouts.back().dimensions);
    const Summed over{at::dim_list_to_bitset(dim, dimensions), keepdim, is_mean};
    const Tensor y = sum_of_steps(call.inputs, call.dtype, call.steps(), call.layouts, over, of_inputs);
    if (y.defined()) return stored(y, ports.stored_as(0));
    call.reason = "it has many inputs and steps, or fewer sums than there are threads";
  }
  const Tensor terms = values(given, read->steps, last, of_inputs)[0];
  const LeftToAten left(call.reason, "ipex::elementwise.sum");
  return stored(is_mean ? at::mean(terms, dim, keepdim) : at::sum(terms, dim, keepdim), ports.stored_as(0));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  const std::string given = "(Tensor[] inputs, str[] steps, ";
  const std::string ports = "bool[] restored=[], float[] affines=[], ScalarType? dtype=None, float[] rounded=[]";
  define(m, "elementwise" + given + ports + ", bool in_one_piece=False, int? outermost=None) -> Tensor", elementwise);
  define(m, "elementwise.several" + given + "int[] results, " + ports + ") -> Tensor[]", elementwise_of_several);
  define(m, "elementwise.sum" + given + "int[] dim, bool keepdim, bool is_mean=False, " + ports + ") -> Tensor", sum);
}

}  // namespace
}  // namespace ipex::runtime
