#include "ops/convolution/convolution_geometry.h"

#include <c10/util/accumulate.h>

#include <limits>

#include "packed/damaged.h"
#include "packed/window_count.h"

namespace ipex::runtime {

using Ints = std::vector<int64_t>;

ConvolutionGeometry ConvolutionGeometry::of(const char* where, const at::Tensor& weight, Ints stride, Ints padding,
                                            Ints dilation, int64_t groups, bool transposed, Ints output_padding) {
  TORCH_CHECK(weight.defined() && weight.dim() >= 3 && weight.dim() <= 5, where,
              ": expected a weight of 3 to 5 dimensions, got ", weight.defined() ? c10::str(weight.sizes()) : "none",
              ". Pass it as torch.nn holds it.");
  const auto rank = static_cast<size_t>(weight.dim() - 2);
  for (const auto& [name, list] : {std::pair{"stride", &stride},
                                   {"padding", &padding},
                                   {"dilation", &dilation},
                                   {"output_padding", &output_padding}}) {
    if (list->size() == 1) list->resize(rank, list->front());
    const bool may_have_two_ends = list == &padding && list->size() == 2 * rank;
    TORCH_CHECK(list->size() == rank || may_have_two_ends, where, ": expected 1 or ", rank, " integers in ", name,
                " for a weight of ", weight.sizes(), ", got ", at::IntArrayRef(*list),
                ". Pass one for each dimension of the image.");
  }
  const bool pads_image = padding.size() == 2 * rank;
  Ints begin(padding.begin(), padding.begin() + static_cast<std::ptrdiff_t>(rank));
  Ints end(padding.end() - static_cast<std::ptrdiff_t>(rank), padding.end());
  if (rank == 1) {
    for (auto* list : {&stride, &dilation}) list->insert(list->begin(), 1);
    for (auto* list : {&begin, &end, &output_padding}) list->insert(list->begin(), 0);
  }
  return {static_cast<int64_t>(rank), stride, begin, end, dilation, output_padding, groups, transposed, pads_image};
}

ConvolutionGeometry ConvolutionGeometry::load(const char* where, const StateReader& reader, bool names_rank) {
  const int64_t spatial_rank = names_rank ? reader.integers("spatial_rank", 1, 1)[0] : 2;
  TORCH_CHECK(spatial_rank <= 3, where, ": expected at most 3 dimensions, got ", spatial_rank, damaged);
  const size_t rank = spatial_rank == 3 ? 3 : 2;
  return {.spatial_rank = spatial_rank,
          .stride = reader.integers("stride", rank, 1),
          .begin = reader.integers("padding_begin", rank, 0),
          .end = reader.integers("padding_end", rank, 0),
          .dilation = reader.integers("dilation", rank, 1),
          .output_padding = names_rank ? reader.integers("output_padding", rank, 0) : Ints(rank, 0),
          .groups = reader.integers("groups", 1, 1)[0],
          .transposed = names_rank && reader.integers("transposed", 1, 0)[0] != 0};
}

Integers ConvolutionGeometry::integers() const {
  return {{"spatial_rank", {spatial_rank}},
          {"stride", stride},
          {"padding_begin", begin},
          {"padding_end", end},
          {"dilation", dilation},
          {"output_padding", output_padding},
          {"groups", {groups}},
          {"transposed", {transposed}}};
}

const char* ConvolutionGeometry::reason_for_aten(bool keeps_layout) const {
  for (size_t i = 0; transposed && i < stride.size(); ++i) {
    if (output_padding[i] >= std::max(stride[i], dilation[i])) return "aten refuses such an output padding";
  }
  // In 3-d aten has kernels that don't keep channels-last, and its choice depends on the CPU.
  return keeps_layout && spatial_rank == 3 ? "the layout of the result is aten's to choose" : nullptr;
}

at::DimVector ConvolutionGeometry::batched_sizes(const at::Tensor& image) const {
  at::DimVector sizes(image.sizes());
  if (image.dim() != batch_rank()) sizes.insert(sizes.begin(), 1);
  if (spatial_rank == 1) sizes.insert(sizes.begin() + 2, 1);
  return sizes;
}

void ConvolutionGeometry::check_image(const char* where, const at::Tensor& image, c10::IntArrayRef weight) const {
  const int64_t rank = image.dim(), channels = input_channels(weight);
  TORCH_CHECK((rank == batch_rank() || rank == batch_rank() - 1) && image.size(rank - spatial_rank - 1) == channels,
              where, ": expected input of ", batch_rank(), " dimensions, or ", batch_rank() - 1,
              " without a batch, with ", channels, " channels (weight is ", weight, "), got ", image.sizes(), ".");
  const Ints sizes = result_sizes(batched_sizes(image), weight);
  TORCH_CHECK(std::all_of(sizes.begin() + 2, sizes.end(), [](int64_t size) { return size >= 0; }), where,
              ": expected an input at least as large as the kernel ", weight, " after padding ", begin, ", got ",
              image.sizes(), ".");
}

at::DimVector ConvolutionGeometry::result_sizes(const at::Tensor& image, c10::IntArrayRef weight) const {
  at::DimVector sizes(result_sizes(batched_sizes(image), weight));
  if (spatial_rank == 1) sizes.erase(sizes.begin() + 2);
  if (image.dim() != batch_rank()) sizes.erase(sizes.begin());
  return sizes;
}

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
