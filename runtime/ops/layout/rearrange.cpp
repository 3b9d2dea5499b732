// ipex::rearrange(x, steps, counts, numbers) -> Tensor: reshapes and permutations in a row, with one copy at most.
//
// Each step has its name in `steps` and so many `numbers` as `counts` says: reshape(sizes), flatten(first, last),
// permute(order), transpose(a, b), unsqueeze(dimension), contiguous(), channels_last(spatial_rank). In eager each
// reshape of something permuted copies. Here a dimension is a list of axes, each with a stride in the memory of x: a
// reshape splits and joins lists, a permutation moves them, and what they end with is copied once, or is a view of x.
// After `contiguous`, reshapes of it and `channels_last` the result lies so; else its strides may be any.
//
// Where a reshape cuts through an axis whose size it does not divide, what there is by then is copied, in the order of its memory if
// that will do: so windows that are put together and cut anew keep their channels side by side. What is no plain tensor on the CPU, or is to be differentiated, takes the steps one by one.
// So do roll(shifts.., dimensions..), pad(pads..) with zeros and slice(dimension, start, end, step), which row_moves.h is for.
//
// im2col(kernel.., dilation.., padding.., stride..) is such a step too: a window's rows and columns are axes with the strides of the
// image, which is copied with its border of zeros where it has one. So is col2im(size.., kernel.., dilation.., padding.., stride..) of
// windows that lie side by side.
#include "ops/layout/rearrange.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "packed/call_conditions.h"
#include "packed/copy_elements.h"
#include "packed/damaged.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "packed/safe_product.h"
#include "packed/window_count.h"

namespace ipex::runtime {
namespace {

using at::IntArrayRef;
using at::Tensor;

// The order of dimensions in memory, the outermost first, of images of this rank that are channels-last.
at::DimVector channels_last_order(int64_t dimensions, int64_t spatial_rank) {
  at::DimVector order(static_cast<size_t>(dimensions));
  std::iota(order.begin(), order.end(), 0);
  const auto channels = order.end() - spatial_rank - 1;
  std::rotate(channels, channels + 1, order.end());
  return order;
}

// The permutation that undoes this one.
at::DimVector way_back(IntArrayRef order) {
  at::DimVector back(order.size());
  for (size_t i = 0; i < order.size(); ++i) back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return back;
}

class Rearrangement {
 public:
  explicit Rearrangement(const Tensor& x) : source_(x) {
    for (int64_t d = 0; d < x.dim(); ++d) dimensions_.push_back({{x.size(d), x.stride(d)}});
  }

  // False where the step is none that these dimensions have.
  bool take(const std::string& step, IntArrayRef numbers) {
    if (step == "reshape") return reshape(numbers);
    if (step == "flatten") return numbers.size() == 2 && flatten(numbers[0], numbers[1]);
    if (step == "permute") return permute(numbers);
    if (step == "transpose") return numbers.size() == 2 && transpose(numbers[0], numbers[1]);
    if (step == "unsqueeze") return numbers.size() == 1 && unsqueeze(numbers[0]);
    if (step == "contiguous") return lie_in_order(order_of_dimensions());
    if (step == "im2col") return numbers.size() == 8 && cut_windows(numbers);
    if (step == "col2im") return numbers.size() == 10 && join_windows(numbers);
    if (step == "channels_last") return numbers.size() == 1 && lie_channels_last(numbers[0]);
    return false;
  }

  Tensor result() const {
    if (wanted_.empty()) return view_or_copy(order_of_dimensions());
    const Tensor view = as_view();
    return view.defined() && lies_in_order(view, wanted_) ? view : copied(wanted_);
  }

 private:
  struct Axis {
    int64_t size, stride;
  };
  using Axes = c10::SmallVector<Axis, 3>;

  int64_t rank() const { return static_cast<int64_t>(dimensions_.size()); }

  static int64_t size_of(const Axes& axes) {
    return std::accumulate(axes.begin(), axes.end(), int64_t{1}, [](int64_t n, const Axis& a) { return n * a.size; });
  }

  // Of a dimension that may be counted from the end. -1 for one that there is not.
  static int64_t counted(int64_t dimension, int64_t rank) {
    const int64_t d = dimension < 0 ? dimension + rank : dimension;
    return d < rank ? d : -1;
  }

  at::DimVector order_of_dimensions() const {
    at::DimVector order(dimensions_.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }

  // The one whose elements lie side by side last.
  at::DimVector order_in_memory() const {
    const auto stride_of = [&](int64_t d) {
      const Axes& axes = dimensions_[static_cast<size_t>(d)];
      return axes.empty() ? std::numeric_limits<int64_t>::max() : axes.back().stride;
    };
    at::DimVector order = order_of_dimensions();
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return stride_of(a) > stride_of(b); });
    return order;
  }

  at::DimVector sizes() const {
    at::DimVector sizes;
    for (const Axes& axes : dimensions_) sizes.push_back(size_of(axes));
    return sizes;
  }

  bool lie_in_order(at::DimVector order) {
    wanted_ = std::move(order);
    return rank() > 0;
  }

  bool lie_channels_last(int64_t spatial_rank) {
    const bool is_image = rank() == spatial_rank + 1 || rank() == spatial_rank + 2;
    return is_image && spatial_rank > 0 && lie_in_order(channels_last_order(rank(), spatial_rank));
  }

  bool reshape(IntArrayRef asked) {
    const at::DimVector before = sizes();
    const int64_t elements = c10::multiply_integers(before);
    at::DimVector to(asked);
    const auto unknown = std::find(to.begin(), to.end(), -1);
    if (unknown != to.end()) {
      *unknown = 1;
      const auto others = safe_product(to);
      if (!others || *others <= 0) return false;
      *unknown = elements / *others;
    }
    if (std::any_of(to.begin(), to.end(), [](int64_t size) { return size <= 0; })) return false;
    if (safe_product(to) != elements) return false;
    return regroup(to) || copy_and_regroup(order_in_memory(), to) || copy_and_regroup(order_of_dimensions(), to);
  }

  // Nothing is copied where it is false.
  bool copy_and_regroup(IntArrayRef order, IntArrayRef to) {
    const auto before = dimensions_;
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      Axes& axes = dimensions_[static_cast<size_t>(order[i])];
      const int64_t size = size_of(axes);
      axes = {{size, stride}};
      stride *= size;
    }
    const bool fits = regroup(to);
    auto after = fits ? dimensions_ : before;
    dimensions_ = before;
    if (fits) {
      source_ = copied(order);
      is_new_ = false;
    }
    dimensions_ = std::move(after);
    return fits;
  }

  // False where an axis would have to be cut where its size has no divisor.
  bool regroup(IntArrayRef to) {
    c10::SmallVector<Axis, 8> left;  // the innermost first
    for (auto axes = dimensions_.rbegin(); axes != dimensions_.rend(); ++axes) {
      for (auto axis = axes->rbegin(); axis != axes->rend(); ++axis) {
        if (axis->size == 1) continue;
        if (!left.empty() && axis->stride == left.back().size * left.back().stride) {
          left.back().size *= axis->size;
        } else {
          left.push_back(*axis);
        }
      }
    }
    c10::SmallVector<Axes, 6> grouped;
    for (const int64_t size : to) {
      Axes& axes = grouped.emplace_back();
      for (int64_t missing = size; missing > 1;) {
        const Axis axis = left.back();
        left.pop_back();
        if (missing % axis.size == 0) {
          axes.push_back(axis);
          missing /= axis.size;
        } else if (axis.size % missing == 0) {
          const int64_t inner = axis.size / missing;
          axes.push_back({missing, axis.stride * inner});
          left.push_back({inner, axis.stride});
          missing = 1;
        } else {
          return false;
        }
      }
    }
    // Contiguous elements stay so, whatever dimensions they have.
    const bool stays_contiguous = !wanted_.empty() && std::is_sorted(wanted_.begin(), wanted_.end());
    dimensions_ = std::move(grouped);
    wanted_ = stays_contiguous ? order_of_dimensions() : at::DimVector();
    return true;
  }

  bool flatten(int64_t first, int64_t last) {
    first = counted(first, rank());
    last = counted(last, rank());
    if (first < 0 || last < first) return false;
    at::DimVector to = sizes();
    const auto begin = to.begin() + first, end = to.begin() + last + 1;
    *begin = std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
    to.erase(begin + 1, end);
    return reshape(to);
  }

  bool permute(IntArrayRef order) {
    if (static_cast<int64_t>(order.size()) != rank()) return false;
    c10::SmallVector<Axes, 6> moved;
    c10::SmallVector<bool, 8> is_taken(dimensions_.size(), false);
    for (const int64_t asked : order) {
      const int64_t d = counted(asked, rank());
      if (d < 0 || is_taken[static_cast<size_t>(d)]) return false;
      is_taken[static_cast<size_t>(d)] = true;
      moved.push_back(dimensions_[static_cast<size_t>(d)]);
    }
    dimensions_ = std::move(moved);
    wanted_.clear();
    return true;
  }

  bool transpose(int64_t a, int64_t b) {
    a = counted(a, rank());
    b = counted(b, rank());
    if (a < 0 || b < 0) return false;
    std::swap(dimensions_[static_cast<size_t>(a)], dimensions_[static_cast<size_t>(b)]);
    wanted_.clear();
    return true;
  }

  bool unsqueeze(int64_t dimension) {
    const int64_t d = counted(dimension, rank() + 1);
    if (d < 0) return false;
    dimensions_.insert(dimensions_.begin() + d, Axes{});
    wanted_.clear();
    return true;
  }

  // Numbers of windows: their products fit.
  static bool are_lengths(IntArrayRef numbers) {
    return std::all_of(numbers.begin(), numbers.end(),
                       [](int64_t n) { return n >= 0 && n <= std::numeric_limits<int32_t>::max(); });
  }

  bool is_image() const { return (rank() == 3 || rank() == 4) && source_.is_floating_point(); }

  // As aten, with new memory for the result: windows overlap in the image.
  bool cut_windows(IntArrayRef numbers) {
    if (!is_image() || !are_lengths(numbers)) return false;
    const size_t first = dimensions_.size() - 2;
    at::DimVector counts;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t kernel = numbers[i], dilation = numbers[i + 2], padding = numbers[i + 4], stride = numbers[i + 6];
      if (kernel < 1 || dilation < 1 || padding < 0 || stride < 1) return false;
      counts.push_back(window_count(size_of(dimensions_[first + i]) + 2 * padding, kernel, dilation, stride));
      if (counts.back() == 0) return false;
    }
    surround(numbers.slice(4, 2));
    Axes rows = dimensions_[first - 1], columns;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t step = source_.stride(static_cast<int64_t>(first + i));
      rows.push_back({numbers[i], step * numbers[i + 2]});
      columns.push_back({counts[i], step * numbers[i + 6]});
    }
    dimensions_.resize(first + 1);
    dimensions_[first - 1] = std::move(rows);
    dimensions_[first] = std::move(columns);
    return lie_as_new();
  }

  // Makes the source these dimensions, in the order of their memory, with borders of zeros around rows and columns.
  void surround(IntArrayRef borders) {
    const Tensor image = view_or_copy(order_in_memory());
    const at::DimVector order = order_in_memory(), image_sizes = sizes();
    const size_t first = image_sizes.size() - 2;
    source_ = image;
    if (borders[0] > 0 || borders[1] > 0) {
      at::DimVector in_order;
      for (const int64_t d : order) {
        const auto i = static_cast<size_t>(d);
        in_order.push_back(image_sizes[i] + (i < first ? 0 : 2 * borders[i - first]));
      }
      source_ = empty_result(in_order, image.options()).zero_().permute(way_back(order));
      Tensor inside = source_;
      for (size_t i = 0; i < 2; ++i) {
        const auto d = static_cast<int64_t>(first + i);
        inside = inside.narrow(d, borders[i], image.size(d));
      }
      copy_elements(inside, image);
    }
    for (int64_t d = 0; d < rank(); ++d) dimensions_[static_cast<size_t>(d)] = {{source_.size(d), source_.stride(d)}};
  }

  // False where windows overlap, or do not fill the image.
  bool join_windows(IntArrayRef numbers) {
    if ((rank() != 2 && rank() != 3) || !are_lengths(numbers)) return false;
    at::DimVector to = sizes();
    to.resize(to.size() - 2);
    at::DimVector counts;
    int64_t of_window = 1;
    for (size_t i = 0; i < 2; ++i) {
      const int64_t size = numbers[i], kernel = numbers[i + 2], dilation = numbers[i + 4], padding = numbers[i + 6];
      if (kernel < 1 || size < kernel || size % kernel != 0 || kernel != numbers[i + 8] || padding != 0) return false;
      if (kernel > 1 && dilation != 1) return false;
      counts.push_back(size / kernel);
      of_window *= kernel;
    }
    const int64_t rows = size_of(dimensions_[to.size()]);
    if (!source_.is_floating_point() || rows % of_window != 0) return false;
    to.append({rows / of_window, numbers[2], numbers[3], counts[0], counts[1]});
    if (!reshape(to)) return false;
    const size_t first = to.size() - 4;
    for (size_t i = 0; i < 2; ++i) {
      Axes whole = dimensions_[first + 2 + i];
      whole.append(dimensions_[first + i].begin(), dimensions_[first + i].end());
      dimensions_[first + i] = std::move(whole);
    }
    dimensions_.resize(first + 2);
    return lie_as_new();
  }

  bool lie_as_new() {
    is_new_ = true;
    return lie_in_order(order_of_dimensions());
  }

  // Undefined where a dimension does not lie at one stride, or the result has to be new.
  Tensor as_view() const {
    if (is_new_) return {};
    at::DimVector strides;
    for (const Axes& axes : dimensions_) {
      for (size_t i = 1; i < axes.size(); ++i) {
        if (axes[i - 1].stride != axes[i].size * axes[i].stride) return {};
      }
      strides.push_back(axes.empty() ? 1 : axes.back().stride);
    }
    return source_.as_strided(sizes(), strides);
  }

  static bool lies_in_order(const Tensor& tensor, IntArrayRef order) {
    int64_t stride = 1;
    for (size_t i = order.size(); i-- > 0;) {
      const int64_t size = tensor.size(order[i]);
      if (size != 1 && tensor.stride(order[i]) != stride) return false;
      stride *= size;
    }
    return true;
  }

  Tensor view_or_copy(const at::DimVector& order) const {
    const Tensor view = as_view();
    return view.defined() ? view : copied(order);
  }

  // A new tensor whose dimensions lie in this order, the outermost first.
  Tensor copied(IntArrayRef order) const {
    at::DimVector in_order, axis_sizes, from_strides;
    for (const int64_t d : order) {
      const Axes& axes = dimensions_[static_cast<size_t>(d)];
      in_order.push_back(size_of(axes));
      for (const Axis& axis : axes) {
        axis_sizes.push_back(axis.size);
        from_strides.push_back(axis.stride);
      }
    }
    at::DimVector to_strides(axis_sizes.size());
    for (size_t i = axis_sizes.size(), stride = 1; i-- > 0; stride *= static_cast<size_t>(axis_sizes[i])) {
      to_strides[i] = static_cast<int64_t>(stride);
    }
    const Tensor result = empty_result(in_order, source_.options());
    copy_elements(result, to_strides, source_, from_strides, axis_sizes);
    return std::is_sorted(order.begin(), order.end()) ? result : result.permute(way_back(order));
  }

  Tensor source_;
  c10::SmallVector<Axes, 6> dimensions_;
  at::DimVector wanted_;  // the order in memory that the last step asks for; empty for any
  bool is_new_ = false;   // a step gives new memory in eager, or elements that lie in several places
};

// As eager computes it.
Tensor take_step(const Tensor& x, const std::string& step, IntArrayRef numbers) {
  if (step == "reshape") return x.reshape(numbers);
  if (step == "permute") return x.permute(numbers);
  if (step == "contiguous") return x.contiguous();
  if (step == "flatten" && numbers.size() == 2) return x.flatten(numbers[0], numbers[1]);
  if (step == "transpose" && numbers.size() == 2) return x.transpose(numbers[0], numbers[1]);
  if (step == "unsqueeze" && numbers.size() == 1) return x.unsqueeze(numbers[0]);
  const auto pair = [&](size_t i) { return numbers.slice(i, 2); };
  if (step == "im2col" && numbers.size() == 8) return at::im2col(x, pair(0), pair(2), pair(4), pair(6));
  if (step == "col2im" && numbers.size() == 10) return at::col2im(x, pair(0), pair(2), pair(4), pair(6), pair(8));
  if (step == "roll") return at::roll(x, numbers.slice(0, numbers.size() / 2), numbers.slice(numbers.size() / 2));
  if (step == "pad") return at::constant_pad_nd(x, numbers);
  if (step == "slice" && numbers.size() == 4) return x.slice(numbers[0], numbers[1], numbers[2], numbers[3]);
  TORCH_CHECK(step == "channels_last" && numbers.size() == 1, "ipex::rearrange: expected a known step, got '", step,
              "' with ", numbers.size(), " numbers", damaged);
  const int64_t rank = numbers[0];
  if (rank < 1 || (x.dim() != rank + 1 && x.dim() != rank + 2)) return x;
  const at::DimVector order = channels_last_order(x.dim(), rank);
  return x.permute(order).contiguous().permute(way_back(order));
}

}  // namespace

Tensor rearrange(const Tensor& x, const std::vector<std::string>& steps, IntArrayRef counts, IntArrayRef numbers) {
  TORCH_CHECK(counts.size() == steps.size() &&
                  std::none_of(counts.begin(), counts.end(), [](int64_t n) { return n < 0; }) &&
                  std::accumulate(counts.begin(), counts.end(), int64_t{0}) == std::ssize(numbers),
              "ipex::rearrange: expected a count for each of ", steps.size(), " steps, got ", counts, " of ",
              numbers.size(), " numbers", damaged);
  const bool is_plain = is_plain_cpu(x) && x.layout() == at::kStrided && !x.is_quantized() && x.numel() > 0;
  if (is_plain && !wants_gradient(x)) {
    Rearrangement all(x);
    const auto take = [&](const std::string& step, IntArrayRef own) { return all.take(step, own); };
    if (for_each_step(steps, counts, numbers, take)) return all.result();
  }
  Tensor y = x;
  for_each_step(steps, counts, numbers, [&](const std::string& step, IntArrayRef own) {
    y = take_step(y, step, own);
    return true;
  });
  return y;
}

namespace {

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "rearrange(Tensor(a) x, str[] steps, int[] counts, int[] numbers) -> Tensor(a)", rearrange);
}

}  // namespace
}  // namespace ipex::runtime
