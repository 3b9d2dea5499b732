#include "ir/single_pixel.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

std::vector<int64_t> integers(const Value* value) {
  const auto constant = toIValue(value);
  return constant && constant->isIntList() ? constant->toIntVector() : std::vector<int64_t>();
}

bool are_all(const std::vector<int64_t>& values, int64_t wanted) {
  return !values.empty() && std::all_of(values.begin(), values.end(), [=](int64_t v) { return v == wanted; });
}

// Whether these are all dimensions of an image of this rank; or, of rank 0, some between the batch and the features.
bool are_spatial(std::vector<int64_t> dims, int64_t rank) {
  if (rank == 0) {
    return !dims.empty() && std::none_of(dims.begin(), dims.end(), [](int64_t d) { return d == 0 || d == -1; });
  }
  for (int64_t& d : dims) d = d < 0 ? d + rank : d - 2;
  std::sort(dims.begin(), dims.end());
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != static_cast<int64_t>(i)) return false;
  }
  return static_cast<int64_t>(dims.size()) == rank;
}

// Whether a list of sizes ends in as many ones.
bool ends_in_ones(const Value* sizes, int64_t rank) {
  const auto all = elements_of(sizes);
  return rank > 0 && all && std::ssize(*all) == rank + 2 &&
         std::all_of(all->end() - rank, all->end(), [](const Value* size) { return number(size) == 1; });
}

bool has_windows_of_one(const Anchor& anchor) {
  if (anchor.spatial_rank() == 0) return true;
  const auto sizes = toIValue(anchor.argument("weight"))->toTensor().sizes();
  return are_all(sizes.slice(2).vec(), 1) && are_all(integers(anchor.argument("padding")), 0) &&
         !anchor.is_transposed();
}

// Looks at so many ops in a row at most: a gate has few, and residuals would be followed to both sides each time.
constexpr int most_steps = 10;

bool is_single_pixel(const Value* value, int64_t rank, int steps = most_steps) {
  if (steps == 0) return false;
  static const OpName mean("aten::mean.dim"), amax("aten::amax"), view("aten::view"), reshape("aten::reshape");
  static const OpName pools[] = {OpName("aten::adaptive_avg_pool1d"), OpName("aten::adaptive_avg_pool2d"),
                                 OpName("aten::adaptive_avg_pool3d"), OpName("aten::adaptive_max_pool2d")};
  const Node* node = value->node();
  const auto is_pixel = [=](const Value* input) { return is_single_pixel(input, rank, steps - 1); };
  if (mean.is_of(node) || amax.is_of(node)) {
    return is_true(node->input(2)) && are_spatial(integers(node->input(1)), rank);
  }
  if (std::any_of(std::begin(pools), std::end(pools), [=](const OpName& pool) { return pool.is_of(node); })) {
    return rank > 0 && are_all(integers(node->input(1)), 1);
  }
  if (view.is_of(node) || reshape.is_of(node)) return ends_in_ones(node->input(1), rank);
  if (const auto anchor = Anchor::producing(value)) {
    const auto operands = anchor->operands();
    return anchor->has_weight() && anchor->spatial_rank() == rank && has_windows_of_one(*anchor) &&
           is_pixel(anchor->input()) && std::all_of(operands.begin(), operands.end(), is_pixel);
  }
  if (has_trait(node, trait::elementwise)) return is_pixel(node->input(0));
  const auto is_constant_or_pixel = [=](const Value* v) {
    return v->node()->kind() == c10::prim::Constant || is_pixel(v);
  };
  return has_trait(node, trait::promotes) && is_constant_or_pixel(node->input(0)) &&
         is_constant_or_pixel(node->input(1));
}

}  // namespace

bool is_single_pixel(const Value* value) {
  return is_single_pixel(value, 2) || is_single_pixel(value, 1) || is_single_pixel(value, 3);
}

bool is_spread_over(const Anchor& anchor, const Value* operand) {
  if (operand->node()->kind() == c10::prim::Constant) return false;
  const int64_t rank = anchor.spatial_rank();
  return is_single_pixel(anchor.output(), rank) && !is_single_pixel(operand, rank);
}

}  // namespace ipex::passes
