// ipex::einsum_operand(x, other, order, summed, has_more) -> Tensor: a factor of an einsum of two, as aten::matmul takes it.
//
// Dimensions are counted from the end, as dots in the equation may stand for any number of others before them. Of the last ones
// of the result, number i is dimension `order[i]` of x. `summed` names the dimension that is summed over in x and in `other`: einsum
// repeats one of a single element there, matmul refuses it; and it multiplies number by number then, which dtypes may differ for.
// Without dots, has_more is false, and the equation names all
// dimensions of x.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "packed/damaged.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

at::Tensor einsum_operand(const at::Tensor& x, const at::Tensor& other, at::IntArrayRef order, at::IntArrayRef summed,
                          bool has_more) {
  const auto named = static_cast<int64_t>(order.size()), more = x.dim() - named;
  TORCH_CHECK(has_more ? more >= 0 : more == 0, "einsum: expected a factor of ", named, " dimensions",
              has_more ? " or more" : "", ", got ", x.sizes(), ".");
  TORCH_CHECK(summed.size() == 2, "ipex::einsum_operand: expected two dimensions that are summed over, got ", summed,
              damaged);
  at::Tensor whole = x;
  const int64_t length = x.size(summed[0]), others_length = -summed[1] <= other.dim() ? other.size(summed[1]) : length;
  if (length == 1 || others_length == 1) {
    whole = whole.to(at::promote_types(x.scalar_type(), other.scalar_type()));
  }
  if (length == 1 && others_length != 1) {
    at::DimVector sizes(x.sizes());
    sizes[static_cast<size_t>(x.dim() + summed[0])] = others_length;
    whole = whole.expand(sizes);
  }
  at::DimVector all(static_cast<size_t>(x.dim()));
  for (int64_t d = 0; d < x.dim(); ++d) {
    all[static_cast<size_t>(d)] = d < more ? d : x.dim() + order[static_cast<size_t>(d - more)];
  }
  return std::is_sorted(all.begin(), all.end()) ? whole : whole.permute(all);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "einsum_operand(Tensor(a) x, Tensor other, int[] order, int[] summed, bool has_more) -> Tensor(a)",
         einsum_operand);
}

}  // namespace
}  // namespace ipex::runtime
