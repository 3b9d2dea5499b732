#include "packed/post_op.h"

#include <ATen/ATen.h>
#include <ipex/post_ops.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "packed/erf_gelu.h"

namespace ipex::runtime {
namespace {

using Tensor = at::Tensor;
using enum dnnl::algorithm;

constexpr double infinity = std::numeric_limits<double>::infinity();

Steps if_(bool condition, Steps steps, Steps otherwise = {}) { return condition ? steps : otherwise; }

const PostOpKind table[] = {
#define IPEX_UNARY_POST_OP(name, count, expression, ...)                                                      \
  {#name, count, false, []([[maybe_unused]] const std::vector<double>& a) -> Steps { return {__VA_ARGS__}; }, \
   [](Tensor y, const Tensor&, const Tensor&, [[maybe_unused]] const PostOpArguments& a) -> Tensor {          \
     return expression;                                                                                       \
   }},
#define IPEX_BINARY_POST_OP(name, count, expression, ...)                                                  \
  {#name, count, true, [](const std::vector<double>&) -> Steps { return {__VA_ARGS__}; },                  \
   [](Tensor y, const Tensor& other, const Tensor&, [[maybe_unused]] const PostOpArguments& a) -> Tensor { \
     return expression;                                                                                    \
   }},
#define IPEX_TERNARY_POST_OP(name, count, expression)                      \
  {#name, count, true, [](const std::vector<double>&) { return Steps(); }, \
   [](Tensor y, const Tensor& other, const Tensor& third, const PostOpArguments&) -> Tensor { return expression; }},
#include "packed/post_ops.inc"
#undef IPEX_TERNARY_POST_OP
#undef IPEX_UNARY_POST_OP
#undef IPEX_BINARY_POST_OP
};

// Whether oneDNN, which keeps them as float, computes with the numbers that were meant.
bool fit_float(const Steps& steps) {
  const auto fits = [](double value) {
    const float narrow = static_cast<float>(value);
    return std::isfinite(value) ? std::isfinite(narrow) && (value == 0 || std::isnormal(narrow)) : !std::isnan(value);
  };
  return std::all_of(steps.begin(), steps.end(), [&](const Step& s) { return fits(s.alpha) && fits(s.beta); });
}

// Text that reads back as the same number, in any locale.
std::string text_of(const at::Scalar& number) {
  char digits[32];
  char* const end = digits + sizeof digits;
  if (number.isIntegral(/*includeBool=*/false)) return {digits, std::to_chars(digits, end, number.toLong()).ptr};
  const std::string text(digits, std::to_chars(digits, end, number.toDouble()).ptr);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // "inf" and "nan" have an n
}

// The number that `text` begins with. `end` is where it ends: at its beginning when there is none.
at::Scalar read_number(std::string_view text, const char*& end) {
  int64_t whole = 0;
  double real = 0;
  const auto as_whole = std::from_chars(text.data(), text.data() + text.size(), whole);
  const auto as_real = std::from_chars(text.data(), text.data() + text.size(), real);
  end = as_real.ptr;
  return as_whole.ec == std::errc() && as_whole.ptr == as_real.ptr ? at::Scalar(whole) : at::Scalar(real);
}

const PostOpKind& kind_of(const char* where, const std::string& name) {
  const PostOpKind* kind =
      std::find_if(std::begin(table), std::end(table), [&](const auto& k) { return name == k.name; });
  TORCH_CHECK(kind != std::end(table), where, ": expected a post-op that this version knows, got '", name,
              "'. The model was written by a newer ipex: upgrade, or optimise it again.");
  return *kind;
}

std::string name_in(const std::string& text) { return text.substr(0, text.find('(')); }

PostOp parse(const char* where, const std::string& text) {
  const std::string name = name_in(text);
  const PostOpKind* kind = &kind_of(where, name);
  PostOpArguments arguments;
  std::vector<double> numbers;
  for (size_t at = name.size() + 1; at < text.size();) {
    const char* end = nullptr;
    const at::Scalar number = read_number(std::string_view(text).substr(at), end);
    if (end == text.data() + at) break;
    arguments.push_back(number);
    numbers.push_back(number.toDouble());
    at = static_cast<size_t>(end - text.data()) + 1;
  }
  TORCH_CHECK(arguments.size() == kind->argument_count, where, ": expected ", kind->argument_count,
              " arguments for post-op '", name, "', got '", text, "'. The model file is damaged: save it again.");
  Steps steps = kind->steps(numbers);
  if (!fit_float(steps)) steps.clear();
  return {kind, std::move(arguments), std::move(steps)};
}

}  // namespace

bool Step::takes_operand() const {
  return algorithm == binary_add || algorithm == binary_sub || algorithm == binary_mul || algorithm == binary_div;
}

PostOps parse_post_ops(const char* where, const std::vector<std::string>& texts) {
  PostOps post_ops;
  for (const std::string& text : texts) post_ops.push_back(parse(where, text));
  return post_ops;
}

std::vector<std::string> texts_of(const PostOps& post_ops) {
  std::vector<std::string> texts;
  for (const PostOp& op : post_ops) {
    std::string text = op.kind->name;
    for (size_t i = 0; i < op.arguments.size(); ++i) {
      text += i == 0 ? '(' : ',';
      text += text_of(op.arguments[i]);
    }
    if (!op.arguments.empty()) text += ')';
    texts.push_back(text);
  }
  return texts;
}

size_t operand_count(const PostOps& post_ops) {
  return std::count_if(post_ops.begin(), post_ops.end(), [](const PostOp& op) { return op.kind->takes_operand; });
}

}  // namespace ipex::runtime

namespace ipex {

bool takes_operand(const std::string& post_op) {
  return runtime::kind_of("ipex::takes_operand", runtime::name_in(post_op)).takes_operand;
}

}  // namespace ipex
