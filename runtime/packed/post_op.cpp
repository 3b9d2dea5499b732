#include "packed/post_op.h"

#include <ATen/ATen.h>
#include <ipex/post_ops.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "packed/damaged.h"
#include "packed/erf_gelu.h"

namespace ipex::runtime {
namespace {

using Tensor = at::Tensor;
using MaybeComputation = std::optional<Computation>;
using enum dnnl::algorithm;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double selu_alpha = 1.6732632423543772, selu_scale = 1.0507009873554805;
const Steps no_primitive;
constexpr MaybeComputation no_kernel;

// Whether a float holds the number that was meant.
bool fits_float(double number) {
  const float narrow = static_cast<float>(number);
  return number == 0 || std::isnormal(narrow) || (std::isinf(number) && std::isinf(narrow));
}

// What post_ops.inc is written in.

template <typename T>
T if_(bool condition, T value, T otherwise = {}) {
  return condition ? value : otherwise;
}

Steps onednn(dnnl::algorithm algorithm, double alpha = 0, double beta = 0) { return {{algorithm, alpha, beta}}; }

Steps both(Steps first, const Steps& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

MaybeComputation ours(Operation operation, double a = 0, double b = 0, double c = 0) {
  if (!fits_float(a) || !fits_float(b) || !fits_float(c)) return std::nullopt;
  return Computation{operation, static_cast<float>(a), static_cast<float>(b), static_cast<float>(c),
                     /*beats_aten=*/false};
}

MaybeComputation faster(Operation operation, double a = 0, double b = 0, double c = 0) {
  MaybeComputation found = ours(operation, a, b, c);
  if (found) found->beats_aten = true;
  return found;
}

MaybeComputation elu_of(double negative, double positive, double exponent) {
  // A negative exponent would let large numbers overflow, for which the kernel is not made. celu refuses 0.
  if (!(exponent >= 0 && std::isfinite(exponent))) return std::nullopt;
  return faster(Operation::elu, negative, positive, exponent);
}

MaybeComputation power(double exponent) {
  if (exponent == 2) return ours(Operation::square);
  if (exponent == 3) return ours(Operation::cube);
  if (exponent == 4) return ours(Operation::fourth_power);
  if (exponent == .5) return ours(Operation::sqrt);
  if (exponent == -.5) return ours(Operation::rsqrt);
  if (exponent == -1) return ours(Operation::reciprocal);
  if (exponent == -2) return ours(Operation::reciprocal_of_square);
  return std::nullopt;
}

// By a multiplication, where the reciprocal is an ordinary float.
MaybeComputation quotient(double divisor) {
  const float reciprocal = static_cast<float>(1 / divisor);
  if (std::isnormal(reciprocal)) return ours(Operation::mul_number, reciprocal);
  return ours(Operation::div_number, divisor);
}

#define IPEX_ROW(name, form, numbers, operands, in_aten, in_ours, in_onednn)                                 \
  {#name,                                                                                                    \
   StepForm::form,                                                                                           \
   numbers,                                                                                                  \
   operands,                                                                                                 \
   []([[maybe_unused]] Tensor y, [[maybe_unused]] const Tensor& other, [[maybe_unused]] const Tensor& third, \
      [[maybe_unused]] const PostOpArguments& a) -> Tensor { return in_aten; },                              \
   []([[maybe_unused]] const Numbers& a) -> MaybeComputation {                                               \
     using enum Operation;                                                                                   \
     return in_ours;                                                                                         \
   },                                                                                                        \
   []([[maybe_unused]] const Numbers& a) -> Steps { return in_onednn; }},

const PostOpKind table[] = {
#define IPEX_ACTIVATION(name, numbers, in_aten, in_ours, in_onednn, patterns) \
  IPEX_ROW(name, unary, numbers, 0, in_aten, in_ours, in_onednn)
#define IPEX_FUNCTION(name, numbers, in_aten, in_ours, patterns) \
  IPEX_ROW(name, unary, numbers, 0, in_aten, in_ours, no_primitive)
#define IPEX_UNARY_POST_OP(name, form, numbers, in_aten, in_ours, in_onednn) \
  IPEX_ROW(name, form, numbers, 0, in_aten, in_ours, in_onednn)
#define IPEX_BINARY_POST_OP(name, form, numbers, in_aten, in_ours, in_onednn) \
  IPEX_ROW(name, form, numbers, 1, in_aten, in_ours, in_onednn)
#define IPEX_TERNARY_POST_OP(name, form, numbers, in_aten, in_ours, in_onednn) \
  IPEX_ROW(name, form, numbers, 2, in_aten, in_ours, in_onednn)
#include "packed/post_ops.inc"
};

const PostOpKind* kind_of(std::string_view name) {
  static const auto index = [] {
    std::unordered_map<std::string_view, const PostOpKind*> all;
    for (const PostOpKind& kind : table) all.emplace(kind.name, &kind);
    return all;
  }();
  const auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

// Whether oneDNN, which keeps them as float, computes with the numbers that were meant.
bool fit_float(const Steps& steps) {
  return std::all_of(steps.begin(), steps.end(),
                     [](const Step& s) { return fits_float(s.alpha) && fits_float(s.beta); });
}

// Text that reads back as the same number, in any locale.
std::string text_of(const at::Scalar& number) {
  char digits[32];
  char* const end = digits + sizeof digits;
  if (number.isIntegral(/*includeBool=*/false)) return {digits, std::to_chars(digits, end, number.toLong()).ptr};
  const std::string text(digits, std::to_chars(digits, end, number.toDouble()).ptr);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;  // "inf" and "nan" have an n
}

// The number that `text` begins with, and where it ends. None where there is none.
std::optional<std::pair<at::Scalar, size_t>> read_number(std::string_view text) {
  int64_t whole = 0;
  double real = 0;
  const char *first = text.data(), *last = first + text.size();
  const auto as_whole = std::from_chars(first, last, whole);
  const auto as_real = std::from_chars(first, last, real);
  if (as_real.ptr == first) return std::nullopt;
  const bool is_whole = as_whole.ec == std::errc() && as_whole.ptr == as_real.ptr;
  return std::pair(is_whole ? at::Scalar(whole) : at::Scalar(real), static_cast<size_t>(as_real.ptr - first));
}

std::string_view name_in(std::string_view text) { return text.substr(0, text.find_first_of("( ")); }

// "leaky_relu(%slope)" of "aten::leaky_relu_?(%y, %slope)".
std::string with_numbers_of(std::string name, const std::string& pattern) {
  size_t count = 0;
  for (size_t at = pattern.find("%", pattern.find("%y") + 1); at != std::string::npos; at = pattern.find('%', at + 1)) {
    name += count++ == 0 ? '(' : ',';
    name += pattern.substr(at, pattern.find_first_of(",)", at) - at);
  }
  return count == 0 ? name : name + ')';
}

PostOp parse(const char* where, const std::string& text) {
  const std::string_view name = name_in(text);
  const PostOpKind* kind = kind_of(name);
  TORCH_CHECK(kind, where, ": expected a post-op that this version knows, got '", name,
              "'. The model was written by a newer ipex: upgrade, or optimise it again.");
  const auto read = read_post_op(text);
  TORCH_CHECK(read && read->text.size() == text.size(), where, ": expected ", kind->argument_count,
              " arguments for post-op '", name, "', got '", text, "'", damaged);
  Steps steps = kind->steps(read->numbers());
  if (!fit_float(steps)) steps.clear();
  return {kind, read->arguments, std::move(steps), computation_of(*read)};
}

}  // namespace

bool Step::takes_operand() const {
  return algorithm == binary_add || algorithm == binary_sub || algorithm == binary_mul || algorithm == binary_div;
}

Numbers PostOpText::numbers() const {
  Numbers all;
  for (const at::Scalar& argument : arguments) all.push_back(argument.toDouble());
  return all;
}

std::optional<PostOpText> read_post_op(std::string_view text) {
  PostOpText found{name_in(text), text, nullptr, {}};
  size_t at = found.name.size();
  if (at < text.size() && text[at] == '(') {
    do {
      const auto number = read_number(text.substr(at + 1));
      if (!number) return std::nullopt;
      found.arguments.push_back(number->first);
      at += 1 + number->second;
    } while (at < text.size() && text[at] == ',');
    if (at == text.size() || text[at++] != ')') return std::nullopt;
  }
  found.text = text.substr(0, at);
  found.kind = kind_of(found.name);
  if (found.kind && found.arguments.size() != found.kind->argument_count) return std::nullopt;
  return found;
}

std::optional<Computation> computation_of(const PostOpText& post_op) {
  const Numbers numbers = post_op.numbers();
  if (!std::all_of(numbers.begin(), numbers.end(), fits_float)) return std::nullopt;
  return post_op.kind->computation(numbers);
}

PostOps parse_post_ops(const char* where, const std::vector<std::string>& texts) {
  PostOps post_ops;
  for (const std::string& text : texts) post_ops.push_back(parse(where, text));
  return post_ops;
}

std::vector<std::string> texts_of(const PostOps& post_ops) {
  std::vector<std::string> texts;
  for (const PostOp& op : post_ops) {
    std::string text(op.kind->name);
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
  return std::count_if(post_ops.begin(), post_ops.end(), [](const PostOp& op) { return op.kind->takes_operand(); });
}

}  // namespace ipex::runtime

namespace ipex {

bool takes_operand(const std::string& post_op) {
  return runtime::parse("ipex::takes_operand", post_op).kind->takes_operand();
}

bool has_elementwise_kernel(const std::string& post_op) {
  const auto read = runtime::read_post_op(post_op);
  return read && read->kind && read->kind->form != runtime::StepForm::reversed && runtime::computation_of(*read);
}

bool beats_aten(const std::string& post_op) {
  const auto read = runtime::read_post_op(post_op);
  const auto computation = read && read->kind ? runtime::computation_of(*read) : std::nullopt;
  return computation && computation->beats_aten;
}

const std::vector<ActivationPattern>& activation_patterns() {
  static const std::vector<ActivationPattern> all = [] {
    std::vector<ActivationPattern> found;
    const auto add = [&](const std::string& name, const std::string& patterns, bool is_packed) {
      constexpr std::string_view separator = " | ";
      for (size_t first = 0, end = 0; end != std::string::npos; first = end + separator.size()) {
        end = patterns.find(separator, first);
        const std::string pattern = patterns.substr(first, end - first);
        found.push_back({runtime::with_numbers_of(name, pattern), pattern, is_packed});
      }
    };
#define IPEX_ACTIVATION(name, numbers, in_aten, in_ours, in_onednn, patterns) add(#name, patterns, /*is_packed=*/true);
#define IPEX_FUNCTION(name, numbers, in_aten, in_ours, patterns) add(#name, patterns, /*is_packed=*/false);
#define IPEX_UNARY_POST_OP(...)
#define IPEX_BINARY_POST_OP(...)
#define IPEX_TERNARY_POST_OP(...)
#include "packed/post_ops.inc"
    return found;
  }();
  return all;
}

}  // namespace ipex
