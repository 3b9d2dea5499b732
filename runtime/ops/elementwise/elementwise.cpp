// Elementwise ops that follow one another, in one pass over memory.
//
//   ipex::elementwise(inputs, steps) -> y
//     inputs = [x, w], steps = ["mul 0 1", "add_number(1.0) 2", "silu 3"]: y = silu(x * w + 1). See steps.h.
//   ipex::elementwise.several(inputs, steps, results) -> the values with these numbers: [4, 5] is x * w + 1 and y.
//   ipex::contiguous_elementwise(inputs, steps) -> y, contiguous where every input is read a row at a time for that
//   ipex::sliced_elementwise(inputs, steps, dim) -> y, with this dimension outermost in memory where eager's is contiguous
//   ipex::elementwise.cast(inputs, steps, restored, dtype) -> ipex::elementwise of the inputs, of which some are cast by
//     ipex::restore_precision before, cast by ipex::lower_precision where there is a dtype
//   ipex::elementwise.bytes(inputs, steps, scale, zero_point) -> ipex::quantize(y, scale, zero_point), in the same pass
//   ipex::elementwise.of_bytes(inputs, steps, affines, result) -> the same of inputs that are numbers: affines has the scale
//     and the zero point of each input, a scale of 0 for float32. result is a scale and a zero point, or empty: floats.
//
// The kernels take float32, bfloat16 and float16, and bool for what chooses among them, in any layout and broadcast in any
// way. Numbers of 16 bits are rounded after each step, as eager rounds them. The result has the strides that eager would give
// it, but for contiguous_elementwise and sliced_elementwise, whose readers want it in one piece, or each slice. All else is computed by aten, step by step; a profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
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
using LayOut = void (*)(Layout& result, at::ArrayRef<Layout> inputs, int64_t dimension);

void lay_out_in_one_piece(Layout& result, at::ArrayRef<Layout> inputs, int64_t /*dimension*/) {
  if (takes_rows(result, inputs)) result.lay_out_as_new();
}

// Only what is contiguous in eager: so are its slices in the order of their dimensions, which is all that their readers see.
// Not along the innermost dimension: the op would pick elements one by one for it.
void lay_out_for_slices(Layout& result, at::ArrayRef<Layout> /*inputs*/, int64_t dimension) {
  const int64_t own = dimension < 0 ? dimension + result.dimensions : dimension;
  if (result.is_as_new() && own >= 0 && own + 1 < result.dimensions) result.lay_out_with_outermost(own);
}

// The values that `results` names. With an affine there is one, and it becomes numbers.
std::vector<Tensor> several(at::TensorList given, const NamedSteps& steps, const ValueNumbers& results,
                            const std::optional<Affine>& affine, LayOut lay_out = nullptr, int64_t dimension = 0) {
  KernelCall call(given, steps, results);
  Layouts& layouts = call.layouts;
  if (!call.reason && lay_out) {
    lay_out(layouts.back(), at::ArrayRef<Layout>(layouts).slice(0, given.size()), dimension);
  }
  if (!call.reason && affine && call.dtype != at::kFloat) call.reason = "numbers are made of float32 only";
  if (!call.reason) {
    auto found = run_steps(call.inputs, call.dtype, call.steps(), layouts, results, {affine, {}}, {});
    if (!found.empty()) return found;
    call.reason = "it has many inputs and steps";
  }
  const LeftToAten left(call.reason, "ipex::elementwise");
  auto found = in_aten(given, steps, results);
  if (affine) found[0] = quantize(found[0], *affine);
  return found;
}

// Numbers where there is an affine.
Tensor elementwise(at::TensorList given, const c10::List<std::string>& texts, const std::optional<Affine>& affine) {
  const auto read = read_steps(texts, static_cast<int64_t>(given.size()));
  return several(given, read->steps, last_of(given, read->steps), affine)[0];
}

std::vector<Tensor> elementwise_of_several(at::TensorList given, const c10::List<std::string>& texts,
                                           at::IntArrayRef named) {
  const auto inputs = static_cast<int64_t>(given.size()), values = inputs + static_cast<int64_t>(texts.size());
  const auto read = read_steps(texts, inputs);
  ValueNumbers results;
  for (const int64_t value : named) {
    TORCH_CHECK(value >= inputs && value < values && (results.empty() || value > static_cast<int64_t>(results.back())),
                "ipex::elementwise: expected results of steps, in order, got value ", value, damaged);
    results.push_back(static_cast<size_t>(value));
  }
  return several(given, read->steps, results, std::nullopt);
}

// The casts that lower_precision makes around a chain, in the same pass over memory.
Tensor elementwise_with_casts(at::TensorList given, const c10::List<std::string>& texts, const c10::List<bool>& flags,
                              std::optional<at::ScalarType> dtype) {
  const auto restored = flags_of(given, flags);
  const auto read = read_steps(texts, static_cast<int64_t>(given.size()));
  const ValueNumbers last = last_of(given, read->steps);
  const StoredAs as = lowered_to("ipex::elementwise", dtype);
  if (const KernelCall call(given, read->steps, last, restored); !call.reason) {
    const auto found = run_steps(call.inputs, call.dtype, call.steps(), call.layouts, last, as, {});
    if (!found.empty()) return found[0];
  }
  return stored(several(restored_inputs(given, restored), read->steps, last, std::nullopt)[0], as);
}

// Whether kernels take the call: numbers are what the layers before have made, and floats and bools are plain.
bool has_kernel(at::TensorList inputs, const OptionalAffines& affines, const NamedSteps& steps) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const at::ScalarType dtype = affines[i] ? at::kByte : at::kFloat;
    const bool is_bool = !affines[i] && input.scalar_type() == at::kBool;
    if ((input.scalar_type() != dtype && !is_bool) || !is_plain_cpu(input) || input.numel() == 0 ||
        input.dim() > Layout::most_dimensions || wants_gradient(input)) {
      return false;
    }
  }
  return !at::autocast::is_autocast_enabled(at::kCPU) &&
         std::all_of(steps.begin(), steps.end(), [](const NamedStep& step) { return step.has_kernel; }) &&
         !reason_for_dtypes(inputs, steps, last_of(inputs, steps));
}

Tensor elementwise_of_bytes(at::TensorList given, const c10::List<std::string>& texts,
                            const std::vector<double>& numbers, const std::vector<double>& result) {
  constexpr const char* where = "ipex::elementwise";
  const OptionalAffines affines = affines_of(where, numbers), results = affines_of(where, result);
  TORCH_CHECK(affines.size() == given.size() && results.size() <= 1, where, ": expected a scale for each of ",
              given.size(), " inputs, got ", affines.size(), damaged);
  const std::optional<Affine> affine = results.empty() ? std::nullopt : results[0];
  const auto read = read_steps(texts, static_cast<int64_t>(given.size()));
  const NamedSteps& steps = read->steps;
  Layouts layouts;
  if (has_kernel(given, affines, steps) && !follow_layouts(given, steps, layouts)) {
    const auto found = run_steps(given, at::kFloat, steps, layouts, last_of(given, steps), {affine, {}}, affines);
    if (!found.empty()) return found[0];
  }
  std::vector<Tensor> floats = given.vec();
  for (size_t i = 0; i < floats.size(); ++i) {
    if (affines[i]) floats[i] = dequantize(floats[i], *affines[i]);
  }
  return elementwise(floats, texts, affine);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "elementwise(Tensor[] inputs, str[] steps) -> Tensor",
         [](at::TensorList inputs, const c10::List<std::string>& steps) {
           return elementwise(inputs, steps, std::nullopt);
         });
  define(m, "contiguous_elementwise(Tensor[] inputs, str[] steps) -> Tensor",
         [](at::TensorList inputs, const c10::List<std::string>& texts) {
           const auto read = read_steps(texts, static_cast<int64_t>(inputs.size()));
           return several(inputs, read->steps, last_of(inputs, read->steps), std::nullopt, lay_out_in_one_piece)[0];
         });
  define(m, "sliced_elementwise(Tensor[] inputs, str[] steps, int dim) -> Tensor",
         [](at::TensorList inputs, const c10::List<std::string>& texts, int64_t dim) {
           const auto read = read_steps(texts, static_cast<int64_t>(inputs.size()));
           return several(inputs, read->steps, last_of(inputs, read->steps), std::nullopt, lay_out_for_slices, dim)[0];
         });
  define(m, "elementwise.several(Tensor[] inputs, str[] steps, int[] results) -> Tensor[]", elementwise_of_several);
  define(m, "elementwise.cast(Tensor[] inputs, str[] steps, bool[] restored, ScalarType? dtype) -> Tensor",
         elementwise_with_casts);
  define(m, "elementwise.bytes(Tensor[] inputs, str[] steps, float scale, int zero_point) -> Tensor",
         [](at::TensorList inputs, const c10::List<std::string>& steps, double scale, int64_t zero_point) {
           return elementwise(inputs, steps, checked("ipex::elementwise", {scale, zero_point}));
         });
  define(m, "elementwise.of_bytes(Tensor[] inputs, str[] steps, float[] affines, float[] result) -> Tensor",
         [](at::TensorList inputs, const c10::List<std::string>& steps, const std::vector<double>& affines,
            const std::vector<double>& result) { return elementwise_of_bytes(inputs, steps, affines, result); });
}

}  // namespace
}  // namespace ipex::runtime
