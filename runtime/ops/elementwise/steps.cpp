#include "ops/elementwise/steps.h"

#include <c10/util/Exception.h>
#include <ipex/post_ops.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace ipex::runtime {
namespace {

using Numbers = c10::SmallVector<double, 3>;

constexpr double infinity = std::numeric_limits<double>::infinity();

// What the kernel computes for a post-op: an operation with its numbers.
struct Computation {
  Operation operation;
  double a = 0, b = 0, c = 0;
};

// None where the numbers need something else.
using Maker = std::optional<Computation> (*)(const Numbers& n);

struct Row {
  std::string_view name;
  StepForm form;
  size_t numbers;
  Maker make;
};

std::optional<Computation> elu_of(double negative, double positive, double exponent) {
  // A negative exponent would let large numbers overflow, for which the kernel is not made. celu refuses 0.
  if (!(exponent >= 0 && std::isfinite(exponent))) return std::nullopt;
  return Computation{Operation::elu, negative, positive, exponent};
}

std::optional<Computation> power(double exponent) {
  if (exponent == 2) return Computation{Operation::square};
  if (exponent == 3) return Computation{Operation::cube};
  if (exponent == 4) return Computation{Operation::fourth_power};
  if (exponent == .5) return Computation{Operation::sqrt};
  if (exponent == -.5) return Computation{Operation::rsqrt};
  if (exponent == -1) return Computation{Operation::reciprocal};
  if (exponent == -2) return Computation{Operation::reciprocal_of_square};
  return std::nullopt;
}

// By a multiplication, where the reciprocal is an ordinary float.
Computation quotient(double divisor) {
  const float reciprocal = static_cast<float>(1 / divisor);
  if (std::isnormal(reciprocal)) return {Operation::mul_number, reciprocal};
  return {Operation::div_number, divisor};
}

#define IPEX_STEP(name, form, numbers, ...) \
  {#name, StepForm::form, numbers,          \
   []([[maybe_unused]] const Numbers& n) -> std::optional<Computation> { return __VA_ARGS__; }}

bool compares_with_number(Operation operation) {
  return operation >= Operation::equal_number && operation <= Operation::greater_or_equal_number;
}

constexpr double selu_alpha = 1.6732632423543772, selu_scale = 1.0507009873554805;

// In the order of the alphabet.
constexpr Row rows[] = {
    IPEX_STEP(abs, unary, 0, Computation{Operation::abs}),
    IPEX_STEP(add, binary, 0, Computation{Operation::add}),
    IPEX_STEP(add_, in_place, 0, Computation{Operation::add}),
    IPEX_STEP(add_number, binary, 1, Computation{Operation::add_number, n[0]}),
    IPEX_STEP(add_scaled, binary, 1, Computation{Operation::add_scaled, n[0]}),
    IPEX_STEP(bitwise_and, binary, 0, Computation{Operation::logical_and}),
    IPEX_STEP(bitwise_not, unary, 0, Computation{Operation::logical_not}),
    IPEX_STEP(bitwise_or, binary, 0, Computation{Operation::logical_or}),
    IPEX_STEP(bitwise_xor, binary, 0, Computation{Operation::logical_xor}),
    IPEX_STEP(ceil, unary, 0, Computation{Operation::ceil}),
    IPEX_STEP(celu, unary, 1, elu_of(n[0], 1, 1 / n[0])),
    IPEX_STEP(clamp, unary, 2, Computation{Operation::clip, n[0], n[1]}),
    IPEX_STEP(clamp_max, unary, 1, Computation{Operation::clip, -infinity, n[0]}),
    IPEX_STEP(clamp_min, unary, 1, Computation{Operation::clip, n[0], infinity}),
    IPEX_STEP(div, binary, 0, Computation{Operation::div}),
    IPEX_STEP(div_, in_place, 0, Computation{Operation::div}),
    IPEX_STEP(div_number, binary, 1, quotient(n[0])),
    IPEX_STEP(elu, unary, 3, elu_of(n[0] * n[1], n[1], n[2])),
    IPEX_STEP(eq, binary, 0, Computation{Operation::equal}),
    IPEX_STEP(eq_number, binary, 1, Computation{Operation::equal_number, n[0]}),
    IPEX_STEP(erf_gelu, unary, 0, Computation{Operation::gelu_erf}),
    IPEX_STEP(exp, unary, 0, Computation{Operation::exp}),
    IPEX_STEP(expm1, unary, 0, Computation{Operation::expm1}),
    IPEX_STEP(floor, unary, 0, Computation{Operation::floor}),
    IPEX_STEP(ge, binary, 0, Computation{Operation::greater_or_equal}),
    IPEX_STEP(ge_number, binary, 1, Computation{Operation::greater_or_equal_number, n[0]}),
    IPEX_STEP(gelu, unary, 0, Computation{Operation::gelu_erf}),
    IPEX_STEP(gelu_tanh, unary, 0, Computation{Operation::gelu_tanh}),
    IPEX_STEP(gt, binary, 0, Computation{Operation::greater}),
    IPEX_STEP(gt_number, binary, 1, Computation{Operation::greater_number, n[0]}),
    IPEX_STEP(hardsigmoid, unary, 0, Computation{Operation::hardsigmoid}),
    IPEX_STEP(hardswish, unary, 0, Computation{Operation::hardswish}),
    IPEX_STEP(hardtanh, unary, 2, Computation{Operation::clip, n[0], n[1]}),
    IPEX_STEP(le, binary, 0, Computation{Operation::less_or_equal}),
    IPEX_STEP(le_number, binary, 1, Computation{Operation::less_or_equal_number, n[0]}),
    IPEX_STEP(leaky_relu, unary, 1, Computation{Operation::leaky_relu, n[0]}),
    IPEX_STEP(log, unary, 0, Computation{Operation::log}),
    IPEX_STEP(log1p, unary, 0, Computation{Operation::log1p}),
    IPEX_STEP(logical_and, binary, 0, Computation{Operation::logical_and}),
    IPEX_STEP(logical_not, unary, 0, Computation{Operation::logical_not}),
    IPEX_STEP(logical_or, binary, 0, Computation{Operation::logical_or}),
    IPEX_STEP(logical_xor, binary, 0, Computation{Operation::logical_xor}),
    IPEX_STEP(lt, binary, 0, Computation{Operation::less}),
    IPEX_STEP(lt_number, binary, 1, Computation{Operation::less_number, n[0]}),
    IPEX_STEP(masked_fill, contiguous, 1, Computation{Operation::masked_fill, n[0]}),
    IPEX_STEP(masked_fill_, in_place, 1, Computation{Operation::masked_fill, n[0]}),
    IPEX_STEP(maximum, binary, 0, Computation{Operation::maximum}),
    IPEX_STEP(minimum, binary, 0, Computation{Operation::minimum}),
    IPEX_STEP(mish, unary, 0, Computation{Operation::mish}),
    IPEX_STEP(mul, binary, 0, Computation{Operation::mul}),
    IPEX_STEP(mul_, in_place, 0, Computation{Operation::mul}),
    IPEX_STEP(mul_number, binary, 1, Computation{Operation::mul_number, n[0]}),
    IPEX_STEP(ne, binary, 0, Computation{Operation::not_equal}),
    IPEX_STEP(ne_number, binary, 1, Computation{Operation::not_equal_number, n[0]}),
    IPEX_STEP(neg, unary, 0, Computation{Operation::neg}),
    IPEX_STEP(pow, unary, 1, power(n[0])),
    IPEX_STEP(reciprocal, unary, 0, Computation{Operation::reciprocal}),
    IPEX_STEP(relu, unary, 0, Computation{Operation::relu}),
    IPEX_STEP(relu6, unary, 0, Computation{Operation::clip, 0, 6}),
    IPEX_STEP(round, unary, 0, Computation{Operation::round}),
    IPEX_STEP(rsqrt, unary, 0, Computation{Operation::rsqrt}),
    IPEX_STEP(rsub, binary, 0, Computation{Operation::rsub}),
    IPEX_STEP(rsub_number, binary, 1, Computation{Operation::rsub_number, n[0]}),
    IPEX_STEP(selu, unary, 0, elu_of(selu_alpha* selu_scale, selu_scale, 1)),
    IPEX_STEP(sigmoid, unary, 0, Computation{Operation::sigmoid}),
    IPEX_STEP(sign, unary, 0, Computation{Operation::sign}),
    IPEX_STEP(silu, unary, 0, Computation{Operation::silu}),
    // Beyond such a threshold e^x would overflow.
    IPEX_STEP(softplus, unary, 2,
              n[0] > 0 && n[1] <= 80 ? std::optional(Computation{Operation::softplus, n[0], n[1]}) : std::nullopt),
    IPEX_STEP(sqrt, unary, 0, Computation{Operation::sqrt}),
    IPEX_STEP(square, unary, 0, Computation{Operation::square}),
    IPEX_STEP(sub, binary, 0, Computation{Operation::sub}),
    IPEX_STEP(sub_, in_place, 0, Computation{Operation::sub}),
    IPEX_STEP(sub_scaled, binary, 1, Computation{Operation::add_scaled, -n[0]}),
    IPEX_STEP(tanh, unary, 0, Computation{Operation::tanh}),
    IPEX_STEP(trunc, unary, 0, Computation{Operation::trunc}),
    IPEX_STEP(where, ternary, 0, Computation{Operation::where}),
    IPEX_STEP(where_number_or, ternary, 1, Computation{Operation::where_number_or, n[0]}),
    IPEX_STEP(where_or_number, ternary, 1, Computation{Operation::where_or_number, n[0]}),
};

#undef IPEX_STEP

constexpr bool are_sorted() {
  for (size_t i = 1; i < std::size(rows); ++i) {
    if (!(rows[i - 1].name < rows[i].name)) return false;
  }
  return true;
}
static_assert(are_sorted());

const Row* row_of(std::string_view name) {
  const Row* found = std::lower_bound(std::begin(rows), std::end(rows), name,
                                      [](const Row& r, std::string_view n) { return r.name < n; });
  return found != std::end(rows) && found->name == name ? found : nullptr;
}

// Whether a float holds the number that was meant.
bool fits_float(double number) {
  const float narrow = static_cast<float>(number);
  return number == 0 || std::isnormal(narrow) || (std::isinf(number) && std::isinf(narrow));
}

class Text {
 public:
  explicit Text(const std::string& text) : text_(text), at_(text.data()), end_(text.data() + text.size()) {}

  NamedStep read(int64_t values, int64_t result) {
    NamedStep step{};
    const size_t length = std::min(text_.find_first_of("( "), text_.size());
    const Row* row = row_of(std::string_view(text_).substr(0, length));
    at_ += length;
    Numbers numbers;
    if (at_ < end_ && *at_ == '(') {
      while (at_ < end_ && *at_++ != ')') {
        if (at_ < end_ && *at_ != ')') numbers.push_back(number<double>());
      }
    }
    step.post_op = std::string_view(text_).substr(0, static_cast<size_t>(at_ - text_.data()));
    step.program.y = step.program.other = step.program.third = value(values);
    step.operands = 1;
    for (int* operand : {&step.program.other, &step.program.third}) {
      if (at_ == end_) break;
      *operand = value(values);
      ++step.operands;
    }
    check(at_ == end_);
    step.program.result = static_cast<int>(result);
    if (!row) return step;
    check(numbers.size() == row->numbers);
    step.form = row->form;
    const auto computation = row->make(numbers);
    step.has_kernel = computation && fits_float(computation->a) && fits_float(computation->b) &&
                      fits_float(computation->c) && std::all_of(numbers.begin(), numbers.end(), fits_float);
    if (!step.has_kernel) return step;
    step.program.operation = computation->operation;
    step.program.a = static_cast<float>(computation->a);
    step.program.b = static_cast<float>(computation->b);
    step.program.c = static_cast<float>(computation->c);
    return step;
  }

 private:
  void check(bool holds) const {
    TORCH_CHECK(holds, "ipex::elementwise: expected a step as 'mul 0 1', got '", text_,
                "'. The model file is damaged: save it again.");
  }

  template <typename Number>
  Number number() {
    Number read{};
    const auto [end, error] = std::from_chars(at_, end_, read);
    check(error == std::errc());
    at_ = end;
    return read;
  }

  int value(int64_t values) {
    check(at_ < end_ && *at_ == ' ');
    ++at_;
    const int found = number<int>();
    check(found >= 0 && found < values);
    return found;
  }

  const std::string& text_;
  const char *at_, *end_;
};

}  // namespace

std::optional<bool> gives_bool(Operation operation, const std::array<bool, 3>& is_bool) {
  const auto [y, other, third] = is_bool;
  const auto if_ = [](bool takes, bool gives) { return takes ? std::optional(gives) : std::nullopt; };
  switch (operation) {
    case Operation::equal:
    case Operation::not_equal:
    case Operation::less:
    case Operation::less_or_equal:
    case Operation::greater:
    case Operation::greater_or_equal:
      return if_(!y && !other, true);
    case Operation::logical_and:
    case Operation::logical_or:
    case Operation::logical_xor:
      return if_(y && other, true);
    case Operation::logical_not:
      return if_(y, true);
    case Operation::where:
      return if_(y && !other && !third, false);
    case Operation::where_or_number:
    case Operation::where_number_or:
      return if_(y && !other, false);
    case Operation::masked_fill:
      return if_(!y && other, false);
    default:
      return if_(!y && !other, compares_with_number(operation));
  }
}

bool rounds_its_number(Operation operation) {
  return compares_with_number(operation) || operation == Operation::add_number || operation == Operation::rsub_number ||
         operation == Operation::add_scaled;
}

std::shared_ptr<const ReadSteps> read_steps(const c10::List<std::string>& texts, int64_t input_count) {
  TORCH_CHECK(!texts.empty() && input_count > 0,
              "ipex::elementwise: expected inputs and steps, got none. The model file is damaged: save it again.");
  constexpr size_t most_remembered = 64;
  thread_local std::array<std::shared_ptr<const ReadSteps>, most_remembered> remembered;
  const size_t count = texts.size();
  size_t hash = static_cast<size_t>(input_count);
  for (size_t i = 0; i < count; ++i) hash = hash * 31 + std::hash<std::string>()(texts[i]);
  std::shared_ptr<const ReadSteps>& place = remembered[hash % most_remembered];
  const auto is_text = [&](size_t i) {
    const std::string& text = texts[i];
    return place->texts[i] == text;
  };
  bool is_known = place && place->input_count == input_count && place->texts.size() == count;
  for (size_t i = 0; is_known && i < count; ++i) is_known = is_text(i);
  if (is_known) return place;

  auto read = std::make_shared<ReadSteps>(ReadSteps{texts.vec(), input_count, {}});
  int64_t values = input_count;
  for (const std::string& text : read->texts) {
    read->steps.push_back(Text(text).read(values, values));
    ++values;
  }
  return place = std::move(read);
}

}  // namespace ipex::runtime

namespace ipex {

bool has_elementwise_kernel(const std::string& post_op) { return runtime::Text(post_op + " 0").read(1, 1).has_kernel; }

}  // namespace ipex
