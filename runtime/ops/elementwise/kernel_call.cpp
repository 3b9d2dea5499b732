#include "ops/elementwise/kernel_call.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/util/overflows.h>

#include <algorithm>

#include "packed/call_conditions.h"
#include "packed/float_rows.h"
#include "packed/post_op.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

// That of the inputs that are no bools, or float32, which some become. Undefined where all are bools.
at::ScalarType dtype_of(at::TensorList inputs, const Ports& ports) {
  if (!ports.restored.empty() || !ports.affines.empty()) return at::kFloat;
  for (const Tensor& input : inputs) {
    if (input.scalar_type() != at::kBool) return input.scalar_type();
  }
  return at::ScalarType::Undefined;
}

// Whether aten refuses the number, which a float holds, as one of the dtype.
bool overflows(float number, at::ScalarType dtype) {
  return (dtype == at::kHalf && c10::overflows<at::Half>(number)) ||
         (dtype == at::kBFloat16 && c10::overflows<at::BFloat16>(number));
}

// Whether the steps get bools where they take them, and floats elsewhere; null where they do.
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

// Whether the program reads an input of this dtype, beside those of its own.
bool takes(at::ScalarType own, size_t input, const Ports& ports) {
  return ports.affine(input) ? own == at::kByte : own == at::kBool || (ports.restores(input) && is_half(own));
}

const char* reason_for_aten(at::TensorList inputs, at::ScalarType dtype, const NamedSteps& steps,
                            const ValueNumbers& results, const Ports& ports) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) return "its inputs are of another dtype";
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& input = inputs[i];
    const at::ScalarType own = input.scalar_type();
    if ((own != dtype || ports.affine(i)) && !takes(own, i, ports)) return "its inputs are of several dtypes";
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
    const Operation operation = step.program.operation;
    return (operation == Operation::masked_fill || operation == Operation::add_scaled) &&
           overflows(step.program.a, dtype);
  };
  if (std::any_of(steps.begin(), steps.end(), is_refused)) return "its dtype has no such number";
  const auto is_rounded = [](const std::optional<Affine>& affine) { return affine.has_value(); };
  const bool is_cast = ports.dtype.value_or(dtype) != dtype;
  if (dtype != at::kFloat && (is_cast || std::any_of(ports.rounded.begin(), ports.rounded.end(), is_rounded))) {
    return "results of another dtype are made of float32 only";
  }
  return reason_for_dtypes(inputs, steps, results);
}

// The inputs, with integers that have no dimensions, as sizes in a trace, in float32: beside a tensor of float32 they count
// as numbers do. Not where only such are read, for their sum is an integer.
Tensors with_numbers_in_float(at::TensorList inputs, const NamedSteps& steps, const Ports& ports) {
  Tensors changed(inputs.begin(), inputs.end());
  const auto is_integer = [&](int value) {
    if (static_cast<size_t>(value) >= inputs.size()) return false;
    const Tensor& input = inputs[static_cast<size_t>(value)];
    if (ports.affine(static_cast<size_t>(value))) return false;
    return input.dim() == 0 && at::isIntegralType(input.scalar_type(), /*includeBool=*/false) && is_plain_cpu(input);
  };
  if (dtype_of(inputs, ports) != at::kFloat) return changed;
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

// The steps with numbers of the dtype, where eager's are.
NamedSteps rounded_as(at::ScalarType dtype, NamedSteps steps) {
  for (NamedStep& step : steps) {
    float& number = step.program.a;
    if (!rounds_its_number(step.program.operation)) continue;
    number = dtype == at::kHalf ? float(at::Half(number)) : float(at::BFloat16(number));
  }
  return steps;
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

}  // namespace

KernelCall::KernelCall(at::TensorList given, const NamedSteps& steps, const ValueNumbers& results, const Ports& ports)
    : inputs(with_numbers_in_float(given, steps, ports)), dtype(dtype_of(inputs, ports)), given_steps_(steps) {
  reason = reason_for_aten(inputs, dtype, steps, results, ports);
  if (!reason) reason = follow_layouts(inputs, steps, layouts);
  if (!reason && dtype != at::kFloat) rounded_ = rounded_as(dtype, steps);
}

ValueNumbers last_of(at::TensorList inputs, const NamedSteps& steps) { return {inputs.size() + steps.size() - 1}; }

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

}  // namespace ipex::runtime
