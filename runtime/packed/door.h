// The door through which every call of an op of ours comes, from a graph, a file or Python. Before anything is computed or allocated it
// looks at each argument: whether the number is one that an argument of this name may have (arguments.inc), a list is no longer than it may
// be, a dtype is one, and a tensor has all its memory. An op with an argument whose name has no row does not register.
//
// What sizes have to agree, and which tensors kernels take, each op knows: what they don't take is aten's.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "packed/call_conditions.h"

namespace ipex::runtime {

class Door {
 public:
  explicit Door(const c10::FunctionSchema& schema);

  template <typename... Arguments>
  void check(const Arguments&... arguments) const {
    size_t i = 0;
    (check_one(i++, arguments), ...);
  }
  // The arguments on top of the stack.
  void check_stack(const c10::Stack& stack) const;

 private:
  struct Rule {
    int64_t most, most_elements;
  };

  template <typename T>
  struct is_optional : std::false_type {};
  template <typename T>
  struct is_optional<std::optional<T>> : std::true_type {};
  template <typename T>
  static constexpr bool is_list =
      requires(const T& list) { list.begin() != list.end(); } && !std::is_convertible_v<T, std::string_view>;

  template <typename T>
  void check_one(size_t i, const T& value) const {
    if constexpr (is_optional<T>::value) {
      if (value) check_one(i, *value);
    } else if constexpr (std::is_same_v<T, c10::OptionalIntArrayRef>) {
      if (value) check_one(i, *value);
    } else if constexpr (std::is_same_v<T, at::Tensor>) {
      check_memory(i, value);
    } else if constexpr (std::is_same_v<T, at::ScalarType>) {
      check_dtype(i, value);
    } else if constexpr (std::is_same_v<T, int64_t>) {
      check_number(i, value);
    } else if constexpr (is_list<T>) {
      check_count(i, value.size());
      using Element = std::decay_t<decltype(*value.begin())>;
      if constexpr (std::is_same_v<Element, at::Tensor> || std::is_same_v<Element, int64_t>) {
        for (const Element& element : value) check_one(i, element);
      }
    }
  }

  void check_number(size_t i, int64_t number) const {
    if (number > rules_[i].most || number < ~rules_[i].most) refuse_number(i, number);  // one less below zero
  }
  void check_count(size_t i, size_t count) const {
    if (static_cast<int64_t>(count) > rules_[i].most_elements) refuse_count(i, count);
  }
  void check_dtype(size_t i, at::ScalarType dtype) const;
  // Tensors without plain memory are aten's.
  void check_memory(size_t i, const at::Tensor& tensor) const {
    if (tensor.defined() && has_plain_memory(tensor) && !has_all_its_memory(tensor)) refuse_memory(i, tensor);
  }
  [[noreturn]] void refuse_memory(size_t i, const at::Tensor& tensor) const;
  [[noreturn]] void refuse_number(size_t i, int64_t number) const;
  [[noreturn]] void refuse_count(size_t i, size_t count) const;
  std::string place(size_t i) const;

  std::string op_;
  std::vector<std::string> names_;
  std::vector<Rule> rules_;
};

// An op that takes its arguments from the stack by itself.
struct OnStack {
  void (*op)(const c10::OperatorHandle&, c10::Stack*);
};

namespace door {

torch::CppFunction before(Door door, OnStack op);

template <typename Op, typename Result, typename... Arguments>
auto before(Door door, Op op, Result (*)(Arguments...)) {
  return [door = std::move(door), op = std::move(op)](Arguments... arguments) -> Result {
    door.check(arguments...);
    return op(std::forward<Arguments>(arguments)...);
  };
}

template <typename Op, typename Result, typename... Arguments>
auto signature(Result (Op::*)(Arguments...) const) -> Result (*)(Arguments...);
template <typename Result, typename... Arguments>
auto signature(Result (*)(Arguments...)) -> Result (*)(Arguments...);

}  // namespace door

c10::FunctionSchema schema_of(const std::string& text, c10::AliasAnalysisKind effects);

// Registers an op: a function, or an object that is called.
template <typename Op>
void define(torch::Library& library, const std::string& schema_text, Op op,
            c10::AliasAnalysisKind effects = c10::AliasAnalysisKind::FROM_SCHEMA) {
  c10::FunctionSchema schema = schema_of(schema_text, effects);
  Door door(schema);
  if constexpr (std::is_same_v<Op, OnStack>) {
    library.def(std::move(schema), door::before(std::move(door), op));
  } else if constexpr (std::is_pointer_v<Op>) {
    library.def(std::move(schema), door::before(std::move(door), op, decltype(door::signature(op)){}));
  } else {
    library.def(std::move(schema), door::before(std::move(door), op, decltype(door::signature(&Op::operator())){}));
  }
}

}  // namespace ipex::runtime
