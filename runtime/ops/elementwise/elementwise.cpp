// Elementwise ops that follow one another, in one pass over memory.
//
//   ipex::elementwise(inputs, steps) -> y
//     inputs = [x, w], steps = ["mul 0 1", "add_number(1.0) 2", "silu 3"]: y = silu(x * w + 1). See steps.h.
//   ipex::elementwise.bytes(inputs, steps, scale, zero_point) -> ipex::quantize(y, scale, zero_point), in the same pass
//   ipex::elementwise.of_bytes(inputs, steps, affines, result) -> the same of inputs that are numbers: affines has the scale
//     and the zero point of each input, a scale of 0 for float32. result is a scale and a zero point, or empty: floats.
//
// The kernels take float32, bfloat16 and float16, in any layout and broadcast in any way. Numbers of 16 bits are rounded
// after each step, as eager rounds them. The result has the strides that eager would give it. All else is computed by aten,
// step by step; a profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/elementwise/plan.h"
#include "packed/call_conditions.h"
#include "packed/post_op.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

const char* reason_for_aten(at::TensorList inputs, const NamedSteps& steps) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  const at::ScalarType dtype = inputs[0].scalar_type();
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) return "its inputs are of another dtype";
  for (const Tensor& input : inputs) {
    if (input.scalar_type() != dtype) return "its inputs are of several dtypes";
    if (!is_plain_cpu(input)) return "an input is not a plain CPU tensor";
    if (input.numel() == 0 || input.dim() > Layout::most_dimensions) return "an input is empty, or has many dimensions";
    if (wants_gradient(input)) return "an input requires a gradient";
  }
  const auto has_kernel = [](const NamedStep& step) { return step.has_kernel; };
  if (!std::all_of(steps.begin(), steps.end(), has_kernel)) return "no kernel has one of its steps";
  // Of float16 aten takes powers, not roots, which are other ones of -0 and -inf.
  const auto is_root_as_power = [](const NamedStep& step) {
    return step.post_op == "pow(0.5)" || step.post_op == "pow(-0.5)";
  };
  if (dtype == at::kHalf && std::any_of(steps.begin(), steps.end(), is_root_as_power)) {
    return "no kernel has one of its steps for float16";
  }
  return nullptr;
}

// The inputs, with integers that have no dimensions, as sizes in a trace, in float32: beside a tensor of float32 they count
// as numbers do. Not where only such are read, for their sum is an integer.
std::vector<Tensor> with_numbers_in_float(at::TensorList inputs, const NamedSteps& steps) {
  std::vector<Tensor> changed = inputs.vec();
  const auto is_integer = [&](int value) {
    if (static_cast<size_t>(value) >= inputs.size()) return false;
    const Tensor& input = inputs[static_cast<size_t>(value)];
    return input.dim() == 0 && at::isIntegralType(input.scalar_type(), /*includeBool=*/false) && is_plain_cpu(input);
  };
  if (inputs[0].scalar_type() != at::kFloat) return changed;
  for (const NamedStep& step : steps) {
    if (is_integer(step.program.y) && (step.form != StepForm::binary || is_integer(step.program.other))) return changed;
  }
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (is_integer(static_cast<int>(i))) changed[i] = inputs[i].to(at::kFloat);
  }
  return changed;
}

// The layouts of the inputs and then of the steps' results, as eager would have them. Why that is not known, or null.
const char* follow_layouts(at::TensorList inputs, const NamedSteps& steps, Layouts& layouts) {
  for (const Tensor& input : inputs) layouts.push_back(Layout::of(input));
  for (const NamedStep& step : steps) {
    const Layout& y = layouts[static_cast<size_t>(step.program.y)];
    const Layout& other = layouts[static_cast<size_t>(step.program.other)];
    const bool has_other = step.takes_other;
    Layout result;
    if (!result_layout(y, has_other ? &other : nullptr, step.form == StepForm::binary, result)) {
      return "the shapes do not fit";
    }
    if (step.form == StepForm::in_place) {
      if (result.all_sizes() != y.all_sizes() || !y.is_dense()) return "an operation in place has another shape";
      result_layout(y, nullptr, /*is_binary=*/false, result);
    }
    layouts.push_back(result);
  }
  return nullptr;
}

Tensor in_aten(at::TensorList inputs, const NamedSteps& steps) {
  std::vector<Tensor> values = inputs.vec();
  for (const NamedStep& step : steps) {
    const PostOps post_op = parse_post_ops("ipex::elementwise", {std::string(step.post_op)});
    const Tensor y = values[static_cast<size_t>(step.program.y)];
    const Tensor other = step.takes_other ? values[static_cast<size_t>(step.program.other)] : Tensor();
    values.push_back(post_op[0].apply(step.form == StepForm::in_place ? y.clone() : y, other));
  }
  return values.back();
}

// Numbers where there is an affine.
Tensor elementwise(at::TensorList given, const c10::List<std::string>& texts, const std::optional<Affine>& affine) {
  const NamedSteps steps = read_steps(texts, static_cast<int64_t>(given.size()));
  const std::vector<Tensor> inputs = with_numbers_in_float(given, steps);
  const char* reason = reason_for_aten(inputs, steps);
  Layouts layouts;
  if (!reason) reason = follow_layouts(inputs, steps, layouts);
  if (!reason && affine && inputs[0].scalar_type() != at::kFloat) reason = "numbers are made of float32 only";
  if (!reason) {
    if (Tensor result = run_steps(inputs, steps, layouts, affine, {}); result.defined()) return result;
    reason = "it has many inputs and steps";
  }
  RECORD_FUNCTION(c10::str("ipex::elementwise in aten: ", reason), {});
  const Tensor y = in_aten(given, steps);
  return affine ? quantize(y, *affine) : y;
}

// Whether kernels take the call: numbers are what the layers before have made, and floats are plain.
bool has_kernel(at::TensorList inputs, const OptionalAffines& affines, const NamedSteps& steps) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const at::ScalarType dtype = affines[i] ? at::kByte : at::kFloat;
    if (input.scalar_type() != dtype || !is_plain_cpu(input) || input.numel() == 0 ||
        input.dim() > Layout::most_dimensions || wants_gradient(input)) {
      return false;
    }
  }
  return !at::autocast::is_autocast_enabled(at::kCPU) &&
         std::all_of(steps.begin(), steps.end(), [](const NamedStep& step) { return step.has_kernel; });
}

Tensor elementwise_of_bytes(at::TensorList given, const c10::List<std::string>& texts,
                            const std::vector<double>& numbers, const std::vector<double>& result) {
  constexpr const char* where = "ipex::elementwise";
  const OptionalAffines affines = affines_of(where, numbers), results = affines_of(where, result);
  TORCH_CHECK(affines.size() == given.size() && results.size() <= 1, where, ": expected a scale for each of ",
              given.size(), " inputs, got ", affines.size(), ". The model file is damaged: save it again.");
  const std::optional<Affine> affine = results.empty() ? std::nullopt : results[0];
  const NamedSteps steps = read_steps(texts, static_cast<int64_t>(given.size()));
  Layouts layouts;
  if (has_kernel(given, affines, steps) && !follow_layouts(given, steps, layouts)) {
    if (Tensor y = run_steps(given, steps, layouts, affine, affines); y.defined()) return y;
  }
  std::vector<Tensor> floats = given.vec();
  for (size_t i = 0; i < floats.size(); ++i) {
    if (affines[i]) floats[i] = dequantize(floats[i], *affines[i]);
  }
  return elementwise(floats, texts, affine);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def("elementwise(Tensor[] inputs, str[] steps) -> Tensor",
        [](at::TensorList inputs, const c10::List<std::string>& steps) {
          return elementwise(inputs, steps, std::nullopt);
        });
  m.def("elementwise.bytes(Tensor[] inputs, str[] steps, float scale, int zero_point) -> Tensor",
        [](at::TensorList inputs, const c10::List<std::string>& steps, double scale, int64_t zero_point) {
          return elementwise(inputs, steps, checked("ipex::elementwise", {scale, zero_point}));
        });
  m.def("elementwise.of_bytes(Tensor[] inputs, str[] steps, float[] affines, float[] result) -> Tensor",
        [](at::TensorList inputs, const c10::List<std::string>& steps, const std::vector<double>& affines,
           const std::vector<double>& result) { return elementwise_of_bytes(inputs, steps, affines, result); });
}

}  // namespace
}  // namespace ipex::runtime
