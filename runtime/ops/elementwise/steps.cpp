#include "ops/elementwise/steps.h"
#include "packed/damaged.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <optional>

namespace ipex::runtime {
namespace {

class Text {
 public:
  explicit Text(const std::string& text) : text_(text), at_(text.data()), end_(text.data() + text.size()) {}

  NamedStep read(int64_t values, int64_t result) {
    NamedStep step{};
    const auto post_op = read_post_op(text_);
    check(post_op.has_value());
    step.post_op = post_op->text;
    at_ += post_op->text.size();
    ProgramStep& program = step.program;
    program.y = program.other = program.third = value(values);
    step.operands = 1;
    for (int* operand : {&program.other, &program.third}) {
      if (at_ == end_) break;
      *operand = value(values);
      ++step.operands;
    }
    check(at_ == end_);
    program.result = static_cast<int>(result);
    if (!post_op->kind) return step;
    step.form = post_op->kind->form;
    const auto computation = computation_of(*post_op);
    step.has_kernel = computation && step.form != StepForm::reversed;
    if (!step.has_kernel) return step;
    program.operation = computation->operation;
    program.a = computation->a;
    program.b = computation->b;
    program.c = computation->c;
    return step;
  }

 private:
  void check(bool holds) const {
    TORCH_CHECK(holds, "ipex::elementwise: expected a step as 'mul 0 1', got '", text_, "'", damaged);
  }

  int value(int64_t values) {
    check(at_ < end_ && *at_ == ' ');
    int found = -1;
    const auto [end, error] = std::from_chars(at_ + 1, end_, found);
    check(error == std::errc() && found >= 0 && found < values);
    at_ = end;
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
    case Operation::where:
      return if_(y && !other && !third, false);
    case Operation::where_or_number:
    case Operation::where_number_or:
      return if_(y && !other, false);
    case Operation::masked_fill:
      return if_(!y && other, false);
    default:
      break;
  }
  const OperationKind kind = kind_of(operation);
  // Where there is no other operand, y is in its place.
  const bool is_logic = kind == OperationKind::logic;
  return if_(y == is_logic && other == is_logic, kind != OperationKind::function);
}

std::shared_ptr<const ReadSteps> read_steps(const c10::List<std::string>& texts, int64_t input_count) {
  TORCH_CHECK(!texts.empty() && input_count > 0, "ipex::elementwise: expected inputs and steps, got none", damaged);
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
