#include "ops/convolution/convolution_geometry.h"

#include <c10/util/Exception.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <limits>

#include "packed/window_count.h"

namespace ipex::runtime {

using Ints = std::vector<int64_t>;

const ConvolutionGeometry& ConvolutionGeometry::checked(const char* where) const {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  const auto expect = [&](const char* what, const Ints& values, int64_t least) {
    TORCH_CHECK(values.size() == stride.size() &&
                    std::all_of(values.begin(), values.end(), [&](int64_t v) { return v >= least && v <= most; }),
                where, ": expected ", stride.size(), " integers of at least ", least, ", and less than 2^31, in ", what,
                ", got ", c10::IntArrayRef(values), ". Correct the convolution, or the file that it was loaded from.");
  };
  expect("stride", stride, 1);
  expect("padding", begin, 0);
  expect("padding", end, 0);
  expect("dilation", dilation, 1);
  expect("output_padding", output_padding, 0);
  TORCH_CHECK(groups >= 1 && groups <= most, where, ": expected at least 1 group, got ", groups,
              ". Correct the convolution, or the file that it was loaded from.");
  return *this;
}

Ints ConvolutionGeometry::result_sizes(c10::IntArrayRef image, c10::IntArrayRef weight) const {
  Ints sizes{image[0], output_channels(weight)};
  for (size_t i = 0; i < stride.size(); ++i) {
    const int64_t padding = begin[i] + end[i], size = image[2 + i];
    if (transposed) {
      sizes.push_back((size - 1) * stride[i] - padding + window(i, weight) + output_padding[i]);
    } else {
      const int64_t count = window_count(size + padding, weight[2 + i], dilation[i], stride[i]);
      sizes.push_back(count > 0 ? count : -1);  // refused
    }
  }
  return sizes;
}

bool ConvolutionGeometry::spreads_far(c10::IntArrayRef weight) const {
  constexpr int64_t most_apart = 1024;
  for (size_t i = 0; transposed && i < stride.size(); ++i) {
    if (stride[i] > std::max(most_apart, window(i, weight))) return true;
  }
  return false;
}

bool ConvolutionGeometry::is_brgemm_at_fault(c10::IntArrayRef image, c10::IntArrayRef weight) const {
  const Ints result = result_sizes(image, weight);
  // aten computes nothing then, or refuses.
  if (c10::multiply_integers(image) == 0 || c10::multiply_integers(result) == 0) return false;
  if (spreads_far(weight)) return true;
  for (size_t i = 0; i < stride.size(); ++i) {
    if (std::max(begin[i], end[i]) >= window(i, weight)) return true;
    // Its holes are wide enough for the whole image.
    const bool may_miss = !transposed && dilation[i] > image[2 + i];
    if (may_miss && std::min(begin[i], end[i]) > 0) return true;
    const bool would_move = !transposed && stride[i] > 1 && window(i, weight) > 1;
    if (would_move && result[2 + i] == 1) return true;
  }
  return false;
}

bool ConvolutionGeometry::can_pad(c10::IntArrayRef widths) const {
  constexpr int64_t most = 1 << 20;
  return !transposed && widths.size() % 2 == 0 && widths.size() <= 2 * static_cast<size_t>(spatial_rank) &&
         std::all_of(widths.begin(), widths.end(), [](int64_t width) { return width >= 0 && width <= most; });
}

ConvolutionGeometry ConvolutionGeometry::padded(c10::IntArrayRef widths) const {
  ConvolutionGeometry geometry = *this;
  geometry.pads_image = true;
  for (size_t i = 0; i < widths.size(); ++i) {  // last dimension first, begin and end in turn
    (i % 2 ? geometry.end : geometry.begin)[stride.size() - 1 - i / 2] += widths[i];
  }
  return geometry;
}

LiveTaps ConvolutionGeometry::without_dead_taps(size_t i, c10::IntArrayRef image, c10::IntArrayRef weight) const {
  const int64_t taps = weight[2 + i], size = image[2 + i], last = result_sizes(image, weight)[2 + i] - 1;
  LiveTaps live{begin[i], end[i], 0, taps};
  // The pixel that the first, and the last, result reads with tap `k`.
  const auto is_dead = [&](int64_t k) {
    const int64_t of_first = k * dilation[i] - begin[i], of_last = of_first + last * stride[i];
    return of_last < 0 || of_first >= size;
  };
  while (live.count > 1 && is_dead(live.from)) {
    ++live.from;
    --live.count;
    live.begin -= dilation[i];
  }
  while (live.count > 1 && is_dead(live.from + live.count - 1)) {
    --live.count;
    live.end -= dilation[i];
  }
  if (is_dead(live.from)) return {begin[i], end[i], 0, taps};
  return live;
}

}  // namespace ipex::runtime
