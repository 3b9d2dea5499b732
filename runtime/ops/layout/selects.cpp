// ipex::selects(x, dim, indices) -> Tensor[]: x.select(dim, index) for each index, in one call of the interpreter.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "packed/door.h"

namespace ipex::runtime {
namespace {

std::vector<at::Tensor> selects(const at::Tensor& x, int64_t dim, at::IntArrayRef indices) {
  std::vector<at::Tensor> pieces;
  pieces.reserve(indices.size());
  for (const int64_t index : indices) pieces.push_back(x.select(dim, index));
  return pieces;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "selects(Tensor(a -> *) x, int dim, int[] indices) -> Tensor(a)[]", selects);
}

}  // namespace
}  // namespace ipex::runtime
