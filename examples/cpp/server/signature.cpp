#include "signature.h"

#include <ATen/ops/zeros.h>

#include <sstream>
#include <stdexcept>
#include <utility>

namespace server {
namespace {

constexpr std::pair<const char*, at::ScalarType> DTYPES[] = {
    {"float32", at::kFloat}, {"float64", at::kDouble}, {"float16", at::kHalf},
    {"int64", at::kLong},    {"int32", at::kInt},      {"int16", at::kShort},
    {"int8", at::kChar},     {"uint8", at::kByte},     {"bool", at::kBool},
};

const char* name_of(at::ScalarType wanted) {
  for (const auto& [name, dtype] : DTYPES) {
    if (dtype == wanted) return name;
  }
  return c10::toString(wanted);
}

std::string text_of(const InputSpec& spec) {
  std::string text = std::string(name_of(spec.dtype)) + " of [";
  for (size_t i = 0; i < spec.sizes.size(); ++i) {
    text += (i ? ", " : "") + (spec.sizes[i] ? std::to_string(*spec.sizes[i]) : "*");
  }
  return text + "]";
}

std::string text_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << name_of(tensor.scalar_type()) << " of " << tensor.sizes();
  return text.str();
}

bool fits(const InputSpec& spec, const at::Tensor& tensor) {
  if (tensor.scalar_type() != spec.dtype || tensor.dim() != static_cast<int64_t>(spec.sizes.size())) return false;
  for (size_t i = 0; i < spec.sizes.size(); ++i) {
    if (spec.sizes[i] && *spec.sizes[i] != tensor.size(static_cast<int64_t>(i))) return false;
  }
  return true;
}

}  // namespace

InputSpec parse_input(const std::string& text) {
  const auto refuse = [&] {
    throw std::invalid_argument("--input: expected a dtype and sizes like float32:*x3x224x224, got '" + text +
                                "'. The first size is the batch: write a star.");
  };
  const size_t colon = text.find(':');
  InputSpec spec{at::ScalarType::Undefined, {}};
  for (const auto& [name, dtype] : DTYPES) {
    if (text.substr(0, colon) == name) spec.dtype = dtype;
  }
  if (colon == std::string::npos || spec.dtype == at::ScalarType::Undefined) refuse();
  std::istringstream sizes(text.substr(colon + 1));
  for (std::string size; std::getline(sizes, size, 'x');) {
    const bool is_number =
        !size.empty() && size.size() < 10 && size.find_first_not_of("0123456789") == std::string::npos;
    if (size != "*" && !is_number) refuse();
    spec.sizes.push_back(is_number ? std::optional<int64_t>(std::stoll(size)) : std::nullopt);
  }
  if (spec.sizes.empty() || spec.sizes[0]) refuse();
  return spec;
}

void check_inputs(const std::vector<InputSpec>& specs, const std::vector<at::Tensor>& inputs) {
  if (inputs.size() != specs.size()) {
    throw std::invalid_argument("expected " + std::to_string(specs.size()) + " arrays, got " +
                                std::to_string(inputs.size()) + ".");
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string which = "expected array " + std::to_string(i) + " as ";
    if (!fits(specs[i], inputs[i])) {
      throw std::invalid_argument(which + text_of(specs[i]) + ", got " + text_of(inputs[i]) + ".");
    }
    if (inputs[i].size(0) == 0) throw std::invalid_argument(which + "one row or more, got none.");
    if (inputs[i].size(0) != inputs[0].size(0)) {
      throw std::invalid_argument(which + std::to_string(inputs[0].size(0)) + " rows, as array 0 has, got " +
                                  std::to_string(inputs[i].size(0)) + ".");
    }
  }
}

std::vector<at::Tensor> example_inputs(const std::vector<InputSpec>& specs, int64_t rows) {
  std::vector<at::Tensor> inputs;
  for (const InputSpec& spec : specs) {
    std::vector<int64_t> sizes{rows};
    for (size_t i = 1; i < spec.sizes.size(); ++i) sizes.push_back(spec.sizes[i].value_or(1));
    inputs.push_back(at::zeros(sizes, spec.dtype));
  }
  return inputs;
}

}  // namespace server
