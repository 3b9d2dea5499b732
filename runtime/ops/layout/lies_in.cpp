// ipex::lies_in(Tensor(a) x, Tensor(b) memory) -> Tensor(a|b): x itself, which may lie in that memory. passes/told_aliases.h
#include <torch/library.h>

#include "packed/door.h"

namespace ipex::runtime {
namespace {

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "lies_in(Tensor(a) x, Tensor(b) memory) -> Tensor(a|b)",
         [](const at::Tensor& x, const at::Tensor&) { return x; });
}

}  // namespace
}  // namespace ipex::runtime
