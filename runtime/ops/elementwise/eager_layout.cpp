#include "ops/elementwise/eager_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ipex::runtime {
namespace {

using Order = std::array<int64_t, Layout::most_dimensions>;

// Gives `layout` the strides of a dense tensor whose dimensions, the innermost first, are these.
void lay_out(Layout& layout, const Order& innermost_first) {
  int64_t stride = 1;
  for (int64_t i = 0; i < layout.dimensions; ++i) {
    const auto d = static_cast<size_t>(innermost_first[static_cast<size_t>(i)]);
    layout.strides[d] = stride;
    stride *= layout.sizes[d];
  }
}

// That of a new contiguous tensor: a dimension of size 1 counts as one of size 1, which changes nothing.
Order order_of_new(int64_t dimensions) {
  Order order;
  for (int64_t i = 0; i < dimensions; ++i) order[static_cast<size_t>(i)] = dimensions - 1 - i;
  return order;
}

bool lies_in_order(const Layout& layout, const Order& innermost_first) {
  int64_t stride = 1;
  for (int64_t i = 0; i < layout.dimensions; ++i) {
    const auto d = static_cast<size_t>(innermost_first[static_cast<size_t>(i)]);
    if (layout.sizes[d] == 1) continue;
    if (layout.strides[d] != stride) return false;
    stride *= layout.sizes[d];
  }
  return true;
}

constexpr Order channels_last{1, 3, 2, 0};

// The strides of an operand as the result sees it: 0 where it is repeated.
Order strides_in(const Layout& result, const Layout& operand) {
  Order strides{};
  const int64_t missing = result.dimensions - operand.dimensions;
  for (int64_t d = 0; d < operand.dimensions; ++d) {
    const auto own = static_cast<size_t>(d), at = static_cast<size_t>(d + missing);
    strides[at] = operand.sizes[own] == 1 && result.sizes[at] != 1 ? 0 : operand.strides[own];
  }
  return strides;
}

// The order that TensorIterator gives to dimensions: by the strides of the first operand that tells two apart.
Order order_by_strides(const Layout& result, at::ArrayRef<Order> operands) {
  const auto compare = [&](int64_t inner, int64_t outer) {
    const auto i = static_cast<size_t>(inner), o = static_cast<size_t>(outer);
    for (const Order& operand : operands) {
      const int64_t first = operand[i], second = operand[o];
      if (first == 0 || second == 0) continue;
      if (first != second) return first < second ? -1 : 1;
      if (result.sizes[i] > result.sizes[o]) return 1;
    }
    return 0;
  };
  Order order = order_of_new(result.dimensions);
  // Insertion, past those that nothing tells apart.
  for (int64_t i = 1; i < result.dimensions; ++i) {
    int64_t moved = i;
    for (int64_t before = i - 1; before >= 0; --before) {
      auto &a = order[static_cast<size_t>(before)], &b = order[static_cast<size_t>(moved)];
      const int found = compare(a, b);
      if (found < 0) break;
      if (found > 0) {
        std::swap(a, b);
        moved = before;
      }
    }
  }
  return order;
}

bool broadcast_sizes(const Layout& a, const Layout& b, Layout& result) {
  result.dimensions = std::max(a.dimensions, b.dimensions);
  for (int64_t d = 0; d < result.dimensions; ++d) {
    const auto size_of = [&](const Layout& operand) {
      const int64_t own = d - (result.dimensions - operand.dimensions);
      return own < 0 ? 1 : operand.sizes[static_cast<size_t>(own)];
    };
    const int64_t first = size_of(a), second = size_of(b);
    if (first != second && first != 1 && second != 1) return false;
    result.sizes[static_cast<size_t>(d)] = first == 1 ? second : first;
  }
  return true;
}

}  // namespace

Layout Layout::of(const at::Tensor& tensor) {
  Layout layout;
  layout.dimensions = tensor.dim();
  std::copy_n(tensor.sizes().begin(), layout.dimensions, layout.sizes.begin());
  std::copy_n(tensor.strides().begin(), layout.dimensions, layout.strides.begin());
  return layout;
}

int64_t Layout::elements() const {
  return std::accumulate(sizes.begin(), sizes.begin() + dimensions, int64_t{1}, std::multiplies<>());
}

bool Layout::is_as_new() const {
  int64_t stride = 1;
  for (int64_t d = dimensions - 1; d >= 0; --d) {
    if (strides[static_cast<size_t>(d)] != stride) return false;
    stride *= sizes[static_cast<size_t>(d)];
  }
  return true;
}

void Layout::lay_out_as_new() { lay_out(*this, order_of_new(dimensions)); }

void Layout::lay_out_with_outermost(int64_t dimension) {
  const auto outermost = static_cast<size_t>(dimension);
  const int64_t size = std::exchange(sizes[outermost], 1);
  lay_out_as_new();
  strides[outermost] = elements();
  sizes[outermost] = size;
}

bool Layout::is_dense() const {
  Order order;
  std::iota(order.begin(), order.begin() + dimensions, 0);
  std::sort(order.begin(), order.begin() + dimensions,
            [&](int64_t a, int64_t b) { return strides[static_cast<size_t>(a)] < strides[static_cast<size_t>(b)]; });
  return lies_in_order(*this, order);
}

bool result_layout(at::ArrayRef<const Layout*> operands, Layout& result) {
  const Layout& first = *operands[0];
  const auto all = [&](const auto& holds) {
    return std::all_of(operands.begin(), operands.end(), [&](const Layout* operand) { return holds(*operand); });
  };
  const bool same_shape = all([&](const Layout& operand) { return operand.all_sizes() == first.all_sizes(); });
  result.dimensions = first.dimensions;
  result.sizes = first.sizes;
  for (size_t i = 1; i < operands.size() && !same_shape; ++i) {
    if (const Layout so_far = result; !broadcast_sizes(so_far, *operands[i], result)) return false;
  }
  const Order as_new = order_of_new(result.dimensions);
  if (all([](const Layout& operand) { return operand.is_as_new(); })) {
    lay_out(result, as_new);
    return true;
  }
  if (same_shape) {
    if (all([&](const Layout& operand) { return lies_in_order(operand, as_new); })) {
      lay_out(result, as_new);
      return true;
    }
    if (result.dimensions == 4 && all([&](const Layout& operand) { return lies_in_order(operand, channels_last); })) {
      lay_out(result, channels_last);
      return true;
    }
    if (first.is_dense() && all([&](const Layout& operand) { return operand.all_strides() == first.all_strides(); })) {
      result.strides = first.strides;
      return true;
    }
  }
  c10::SmallVector<Order, 3> strides;
  for (const Layout* operand : operands) strides.push_back(strides_in(result, *operand));
  lay_out(result, order_by_strides(result, strides));
  return true;
}

}  // namespace ipex::runtime
