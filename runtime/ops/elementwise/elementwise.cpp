// Elementwise ops that follow one another, in one pass over memory.
//
//   ipex::elementwise(inputs, steps) -> y
//     inputs = [x, w], steps = ["mul 0 1", "add_number(1.0) 2", "silu 3"]: y = silu(x * w + 1). See steps.h.
//   ipex::elementwise.several(inputs, steps, results) -> the values with these numbers: [4, 5] is x * w + 1 and y.
//   ipex::contiguous_elementwise(inputs, steps) -> y, contiguous where every input is read a row at a time for that
//   ipex::elementwise.bytes(inputs, steps, scale, zero_point) -> ipex::quantize(y, scale, zero_point), in the same pass
//   ipex::elementwise.of_bytes(inputs, steps, affines, result) -> the same of inputs that are numbers: affines has the scale
//     and the zero point of each input, a scale of 0 for float32. result is a scale and a zero point, or empty: floats.
//
// The kernels take float32, bfloat16 and float16, and bool for what chooses among them, in any layout and broadcast in any
// way. Numbers of 16 bits are rounded after each step, as eager rounds them. The result has the strides that eager would give
// it, but for contiguous_elementwise, whose reader wants it in one piece. All else is computed by aten, step by step; a profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/util/overflows.h>
#include <torch/library.h>

#include <algorithm>

#include "ops/elementwise/plan.h"
#include "packed/call_conditions.h"
#include "packed/post_op.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

// That of the inputs that are no bools. Undefined where all are.
at::ScalarType dtype_of(at::TensorList inputs) {
  for (const Tensor& input : inputs) {
    if (input.scalar_type() != at::kBool) return input.scalar_type();
  }
  return at::ScalarType::Undefined;
}

// Whether steps of this dtype get bools where they take them, and floats elsewhere.
const char* reason_for_dtypes(at::TensorList inputs, const NamedSteps& steps, const ValueNumbers& results) {
  c10::SmallVector<bool, 32> is_bool;
  for (const Tensor& input : inputs) is_bool.push_back(input.scalar_type() == at::kBool);
  for (const NamedStep& step : steps) {
    const auto gives = gives_bool(step.program.operation,
                                  {is_bool[step.operand(0)], is_bool[step.operand(1)], is_bool[step.operand(2)]});
    if (!gives) return "a step takes other dtypes";
    is_bool.push_back(*gives);
  }
  const auto is_of_bools = [&](size_t result) { return is_bool[result]; };
  return std::any_of(results.begin(), results.end(), is_of_bools) ? "its result is of bools" : nullptr;
}

// Whether aten refuses the number, which a float holds, as one of the dtype.
bool overflows(float number, at::ScalarType dtype) {
  return (dtype == at::kHalf && c10::overflows<at::Half>(number)) ||
         (dtype == at::kBFloat16 && c10::overflows<at::BFloat16>(number));
}

const char* reason_for_aten(at::TensorList inputs, const NamedSteps& steps, const ValueNumbers& results) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  const at::ScalarType dtype = dtype_of(inputs);
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) return "its inputs are of another dtype";
  for (const Tensor& input : inputs) {
    if (input.scalar_type() != dtype && input.scalar_type() != at::kBool) return "its inputs are of several dtypes";
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
  const auto is_refused = [&](const NamedStep& step) {
    return step.program.operation == Operation::masked_fill && overflows(step.program.a, dtype);
  };
  if (std::any_of(steps.begin(), steps.end(), is_refused)) return "its dtype has no such number";
  return reason_for_dtypes(inputs, steps, results);
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
  if (dtype_of(inputs) != at::kFloat) return changed;
  for (const NamedStep& step : steps) {
    if (is_integer(step.program.y) && (step.form != StepForm::binary || is_integer(step.program.other))) return changed;
    const bool has_third = step.operands == 3;
    if (step.form == StepForm::ternary && is_integer(step.program.other) &&
        (!has_third || is_integer(step.program.third))) {
      return changed;
    }
  }
  for (size_t i = 1; i < inputs.size(); ++i) {
    if (is_integer(static_cast<int>(i))) changed[i] = inputs[i].to(at::kFloat);
  }
  return changed;
}

// The layouts of the inputs and then of the steps' results, as eager would have them. Why that is not known, or null.
const char* follow_layouts(at::TensorList inputs, const NamedSteps& steps, Layouts& layouts) {
  for (const Tensor& input : inputs) layouts.push_back(Layout::of(input));
  const Layout number{};  // without dimensions
  for (const NamedStep& step : steps) {
    c10::SmallVector<const Layout*, 3> operands;
    for (int i = 0; i < step.operands; ++i) operands.push_back(&layouts[step.operand(i)]);
    const size_t all = step.form == StepForm::ternary ? 3 : step.form == StepForm::binary ? 2 : 1;
    while (operands.size() < all) operands.push_back(&number);
    Layout result;
    if (!result_layout(operands, result)) return "the shapes do not fit";
    if (step.form == StepForm::in_place) {
      const Layout& y = *operands[0];
      if (result.all_sizes() != y.all_sizes() || !y.is_dense()) return "an operation in place has another shape";
      result_layout(&y, result);
    }
    if (step.form == StepForm::contiguous) result.lay_out_as_new();
    layouts.push_back(result);
  }
  return nullptr;
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

// What elements of 16 bits are compared with has their dtype.
NamedSteps rounded_as(at::ScalarType dtype, NamedSteps steps) {
  for (NamedStep& step : steps) {
    float& number = step.program.a;
    if (!compares_with_number(step.program.operation)) continue;
    number = dtype == at::kHalf ? float(at::Half(number)) : float(at::BFloat16(number));
  }
  return steps;
}

std::vector<Tensor> in_aten(at::TensorList inputs, const NamedSteps& steps, const ValueNumbers& results) {
  std::vector<Tensor> values = inputs.vec();
  for (const NamedStep& step : steps) {
    const PostOps post_op = parse_post_ops("ipex::elementwise", {std::string(step.post_op)});
    const auto operand = [&](int i) { return i < step.operands ? values[step.operand(i)] : Tensor(); };
    const Tensor y = operand(0);
    values.push_back(post_op[0].apply(step.form == StepForm::in_place ? y.clone() : y, operand(1), operand(2)));
  }
  std::vector<Tensor> found;
  for (const size_t result : results) found.push_back(values[result]);
  return found;
}

// The values that `results` names. With an affine there is one, and it becomes numbers. Without eager_layout it may be contiguous.
std::vector<Tensor> several(at::TensorList given, const NamedSteps& steps, const ValueNumbers& results,
                            const std::optional<Affine>& affine, bool eager_layout = true) {
  const std::vector<Tensor> inputs = with_numbers_in_float(given, steps);
  const char* reason = reason_for_aten(inputs, steps, results);
  Layouts layouts;
  if (!reason) reason = follow_layouts(inputs, steps, layouts);
  if (!reason && !eager_layout && takes_rows(layouts.back(), at::ArrayRef<Layout>(layouts).slice(0, inputs.size()))) {
    layouts.back().lay_out_as_new();
  }
  const at::ScalarType dtype = dtype_of(inputs);
  if (!reason && affine && dtype != at::kFloat) reason = "numbers are made of float32 only";
  if (!reason) {
    const NamedSteps rounded = dtype == at::kFloat ? NamedSteps() : rounded_as(dtype, steps);
    const NamedSteps& own = dtype == at::kFloat ? steps : rounded;
    if (auto found = run_steps(inputs, dtype, own, layouts, results, affine, {}); !found.empty()) return found;
    reason = "it has many inputs and steps";
  }
  RECORD_FUNCTION(c10::str("ipex::elementwise in aten: ", reason), {});
  auto found = in_aten(given, steps, results);
  if (affine) found[0] = quantize(found[0], *affine);
  return found;
}

ValueNumbers last_of(at::TensorList inputs, const NamedSteps& steps) { return {inputs.size() + steps.size() - 1}; }

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
                "ipex::elementwise: expected results of steps, in order, got value ", value,
                ". The model file is damaged: save it again.");
    results.push_back(static_cast<size_t>(value));
  }
  return several(given, read->steps, results, std::nullopt);
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
              given.size(), " inputs, got ", affines.size(), ". The model file is damaged: save it again.");
  const std::optional<Affine> affine = results.empty() ? std::nullopt : results[0];
  const auto read = read_steps(texts, static_cast<int64_t>(given.size()));
  const NamedSteps& steps = read->steps;
  Layouts layouts;
  if (has_kernel(given, affines, steps) && !follow_layouts(given, steps, layouts)) {
    const auto found = run_steps(given, at::kFloat, steps, layouts, last_of(given, steps), affine, affines);
    if (!found.empty()) return found[0];
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
  m.def("contiguous_elementwise(Tensor[] inputs, str[] steps) -> Tensor",
        [](at::TensorList inputs, const c10::List<std::string>& texts) {
          const auto read = read_steps(texts, static_cast<int64_t>(inputs.size()));
          return several(inputs, read->steps, last_of(inputs, read->steps), std::nullopt, /*eager_layout=*/false)[0];
        });
  m.def("elementwise.several(Tensor[] inputs, str[] steps, int[] results) -> Tensor[]", elementwise_of_several);
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
