// The operations of operations.inc, by their names.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Of y, and of `other` and `third` where it has more operands, with numbers a, b and c.
enum class Operation : uint8_t {
#define IPEX_FUNCTION(name, ...) name,
#define IPEX_COMPARISON(name, ...) name,
#define IPEX_LOGIC(name, ...) name,
#define IPEX_CHOICE(name, ...) name,
#define IPEX_CHOICE_OF_TWO(name, ...) name,
#include "kernels/operations.inc"
};

enum class OperationKind : uint8_t { function, comparison, logic, choice };

constexpr OperationKind kind_of(Operation operation) {
  constexpr OperationKind kinds[] = {
#define IPEX_FUNCTION(...) OperationKind::function,
#define IPEX_COMPARISON(...) OperationKind::comparison,
#define IPEX_LOGIC(...) OperationKind::logic,
#define IPEX_CHOICE(...) OperationKind::choice,
#define IPEX_CHOICE_OF_TWO(...) OperationKind::choice,
#include "kernels/operations.inc"
  };
  return kinds[static_cast<int>(operation)];
}

// Whether the number of the operation has the dtype of the floats in eager: it is what they are compared with, or added to, or
// what scales an addend. Others stay as they are.
constexpr bool rounds_its_number(Operation operation) {
  switch (operation) {
#define IPEX_ROUNDED(name, ...) case Operation::name:
#define IPEX_COMPARISON(name, ...) case Operation::name:
#include "kernels/operations.inc"
    return true;
    default:
      return false;
  }
}

}  // namespace ipex::runtime
