#include "packed/door.h"

#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <memory>

namespace ipex::runtime {
namespace {

constexpr int64_t any_number = std::numeric_limits<int64_t>::max();
constexpr int64_t most_dimensions = 64, most_in_a_list = 1 << 16, most_steps = 1024;
constexpr int64_t largest_length = std::numeric_limits<int32_t>::max();  // of a dimension in which windows move
constexpr int64_t largest_size = int64_t{1} << 47;                       // of what memory can hold

struct Argument {
  std::string_view name;
  int64_t most, most_elements;
};

constexpr Argument arguments[] = {
#define IPEX_ARGUMENT(name, most, most_elements) {#name, most, most_elements},
#include "packed/arguments.inc"
#undef IPEX_ARGUMENT
};

// What holds for numbers and texts. Tensors, floats and objects need no row: what can be wrong with them does not hang on their names.
bool needs_row(const c10::TypePtr& type) {
  if (const auto optional = type->cast<c10::OptionalType>()) return needs_row(optional->getElementType());
  if (const auto list = type->cast<c10::ListType>())
    return needs_row(list->getElementType()) || list->getElementType()->kind() == c10::TypeKind::StringType;
  return type->kind() == c10::TypeKind::IntType;
}

class BeforeStack final : public c10::OperatorKernel {
 public:
  BeforeStack(Door door, OnStack op) : door_(std::move(door)), op_(op) {}

  void operator()(const c10::OperatorHandle& handle, c10::DispatchKeySet /*keys*/, c10::Stack* stack) {
    door_.check_stack(*stack);
    op_.op(handle, stack);
  }

 private:
  const Door door_;
  const OnStack op_;
};

}  // namespace

torch::CppFunction door::before(Door door, OnStack op) {
  auto kernel = std::make_unique<BeforeStack>(std::move(door), op);
  return torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(std::move(kernel)));
}

void Door::check_stack(const c10::Stack& stack) const {
  const size_t first = stack.size() - rules_.size();
  for (size_t i = 0; i < rules_.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    if (value.isTensor()) {
      check_one(i, value.toTensor());
    } else if (value.isInt()) {
      check_one(i, value.toInt());
    } else if (value.isIntList()) {
      check_one(i, value.toIntVector());
    } else if (value.isTensorList()) {
      for (const c10::IValue& element : value.toListRef()) check_one(i, element.toTensor());
    }
  }
}

c10::FunctionSchema schema_of(const std::string& text, c10::AliasAnalysisKind effects) {
  c10::FunctionSchema schema = torch::jit::parseSchema(text);
  schema.setAliasAnalysis(effects);
  return schema;
}

Door::Door(const c10::FunctionSchema& schema) : op_(schema.name()) {
  if (op_.find("::") == std::string::npos) op_ = "ipex::" + op_;
  for (const c10::Argument& argument : schema.arguments()) {
    Rule rule{any_number, most_in_a_list};
    const bool needs = needs_row(argument.type()) && argument.name() != "dtype";  // an integer, to a schema
    const auto* const row = std::find_if(std::begin(runtime::arguments), std::end(runtime::arguments),
                                         [&](const Argument& known) { return known.name == argument.name(); });
    TORCH_CHECK(!needs || row != std::end(runtime::arguments), op_, ": expected a row in packed/arguments.inc for ",
                argument.name(), ", got none.");
    if (needs) rule = {row->most, row->most_elements};
    names_.push_back(argument.name());
    rules_.push_back(rule);
  }
}

std::string Door::place(size_t i) const { return c10::str(op_, ": expected ", names_[i]); }

void Door::check_dtype(size_t i, at::ScalarType dtype) const {
  TORCH_CHECK(
      static_cast<int64_t>(dtype) >= 0 && dtype < at::ScalarType::NumOptions && dtype != at::ScalarType::Undefined,
      place(i), " to be a dtype, got number ", static_cast<int64_t>(dtype),
      ". If it came out of a file, that is damaged: save it again.");
}

void Door::refuse_memory(size_t i, const at::Tensor& tensor) const {
  TORCH_CHECK(false, place(i), " to have memory for its sizes ", tensor.sizes(), " and strides ", tensor.strides(),
              ", got a storage of ", tensor.storage().nbytes(),
              " bytes. Something freed or shrank it, or the file that it came from is damaged.");
}

void Door::refuse_number(size_t i, int64_t number) const {
  TORCH_CHECK(false, place(i), " between ", ~rules_[i].most, " and ", rules_[i].most, ", got ", number,
              ". If it came out of a file, that is damaged: save it again.");
}

void Door::refuse_count(size_t i, size_t count) const {
  TORCH_CHECK(false, place(i), " to have at most ", rules_[i].most_elements, " elements, got ", count,
              ". If it came out of a file, that is damaged: save it again.");
}

}  // namespace ipex::runtime
