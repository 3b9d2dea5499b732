// Pixels of images at places that are computed, weighted and summed, as deformable attention reads them.
//
//   ipex::sampled_sum(images, grids, weights, interpolation_mode, padding_mode, align_corners, stacked) -> Tensor
//
// Samples each image with its grid, as aten::grid_sampler does, joins the results in their last dimension (stacked: all have
// the same size there), multiplies them with the weights, and sums over that dimension. It holds a sum per channel, and no
// sample.
//
// A place lies between four pixels. They are read in vectors of channels: an image with its channels in planes is turned
// first, where enough places read it. aten reads one channel after the other, many places at once: faster where there are few
// channels, and where nothing is summed.
// Takes float32 images, interpolated bilinearly, with zeros or the border's pixels around them. All else is left to aten,
// also what aten refuses; a profiler shows it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "packed/call_conditions.h"
#include "packed/damaged.h"
#include "packed/door.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// In the numbers of aten.
enum Interpolation : int64_t { bilinear = 0 };
enum Padding : int64_t { zeros = 0, border = 1 };

constexpr int64_t elements_worth_a_wake = 32768;
constexpr int64_t places_at_once = 16;  // so many results of a channel lie in a line of memory

const char* reason_against_sampling(const at::Tensor& x, const at::Tensor& grid, int64_t interpolation,
                                    int64_t padding) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x) || !is_plain_cpu_float(grid)) return "an input is not a float32 CPU tensor";
  if (wants_gradient(x) || wants_gradient(grid)) return "an input requires a gradient";
  if (x.dim() != 4 || grid.dim() != 4 || grid.size(0) != x.size(0) || grid.size(3) != 2) return "it samples no images";
  if (x.numel() == 0 || grid.numel() == 0) return "an input is empty";
  constexpr int64_t most_counted_by_floats = 1 << 24;
  if (std::max(x.size(2), x.size(3)) > most_counted_by_floats)
    return "it has more pixels in a row than floats can count";
  if (interpolation != bilinear) return "it is not bilinear";
  if (padding != zeros && padding != border) return "it reflects";
  return nullptr;
}

// How a coordinate from -1 to 1 is one in pixels.
struct Axis {
  float size, scale, shift;

  Axis(int64_t pixels, bool align_corners)
      : size(static_cast<float>(pixels)),
        scale((align_corners ? size - 1 : size) / 2),
        shift(align_corners ? 0 : .5f) {}

  float in_pixels(float at, bool clips) const {
    const float place = (at + 1) * scale - shift;
    if (!clips) return place;
    return place > 0 ? std::min(place, size - 1) : 0;  // NaN is 0, as in aten
  }

  bool contains(float pixel) const { return pixel >= 0 && pixel <= size - 1; }
};

// An image that is sampled, of several, and where.
class Sampling {
 public:
  Sampling(const at::Tensor& images, const at::Tensor& grids, bool clips, bool align_corners)
      : vertical_(images.size(2), align_corners),
        horizontal_(images.size(3), align_corners),
        clips_(clips),
        channels_(images.size(1)),
        images_(images),
        grids_(grids),
        pixels_(images.const_data_ptr<float>()),
        places_(grids.const_data_ptr<float>()) {}

  int64_t columns() const { return grids_.size(2); }

  // Adds the channels at a place, times `factor`.
  void add(int64_t image, int64_t row, int64_t column, float factor, float* to) const {
    const float* place = places_ + image * grids_.stride(0) + row * grids_.stride(1) + column * grids_.stride(2);
    const float x = horizontal_.in_pixels(place[0], clips_), y = vertical_.in_pixels(place[grids_.stride(3)], clips_);
    const float left = std::floor(x), top = std::floor(y);
    const float of_right = x - left, of_bottom = y - top;
    // Not finite, also outside of the image.
    if (const float none = 0 * of_right * of_bottom; none != 0) std::fill_n(to, channels_, none);
    const auto add = [&](float pixel_x, float pixel_y, float weight) {
      if (!horizontal_.contains(pixel_x) || !vertical_.contains(pixel_y)) return;
      const float* from = pixels_ + image * images_.stride(0) + static_cast<int64_t>(pixel_y) * images_.stride(2) +
                          static_cast<int64_t>(pixel_x) * images_.stride(3);
      const int64_t stride = images_.stride(1);
      if (stride == 1) {
        for (int64_t c = 0; c < channels_; ++c) to[c] += weight * from[c];
      } else {
        for (int64_t c = 0; c < channels_; ++c) to[c] += weight * from[c * stride];
      }
    };
    add(left, top, (1 - of_right) * (1 - of_bottom) * factor);
    add(left + 1, top, of_right * (1 - of_bottom) * factor);
    add(left, top + 1, (1 - of_right) * of_bottom * factor);
    add(left + 1, top + 1, of_right * of_bottom * factor);
  }

 private:
  Axis vertical_, horizontal_;
  bool clips_;
  int64_t channels_;
  at::Tensor images_, grids_;
  const float *pixels_, *places_;
};

// Images and grids that go together, with pixels in one piece where that pays.
class Samplings {
 public:
  Samplings(at::TensorList images, at::TensorList grids, int64_t padding, bool align_corners) {
    int64_t elements = 0;
    for (size_t i = 0; i < images.size(); ++i) elements += is_turned(images[i], grids[i]) ? images[i].numel() : 0;
    if (elements > 0) {
      const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
      memory_ = scratch(static_cast<size_t>(bytes)).narrow(0, 0, bytes).view(at::kFloat);
    }
    int64_t used = 0;
    for (size_t i = 0; i < images.size(); ++i) {
      at::Tensor image = images[i];
      if (is_turned(image, grids[i])) {
        const auto s = image.sizes();
        image = memory_.narrow(0, used, image.numel()).view({s[0], s[2], s[3], s[1]}).permute({0, 3, 1, 2});
        image.copy_(images[i]);
        used += image.numel();
      }
      all_.emplace_back(image, grids[i], padding == border, align_corners);
    }
  }

  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  static bool is_turned(const at::Tensor& image, const at::Tensor& grid) {
    const int64_t places = grid.size(1) * grid.size(2), pixels = image.size(2) * image.size(3);
    return image.stride(1) != 1 && image.size(1) > 1 && 2 * places >= pixels;
  }

  at::Tensor memory_;
  std::vector<Sampling> all_;
};

// Fills y, of images x channels x places, from compute(image, place, channels of that place, zeros as yet).
template <typename Compute>
void for_each_place(const at::Tensor& y, int64_t places, int64_t work_of_a_place, Compute&& compute) {
  const int64_t images = y.size(0), channels = y.size(1);
  const int64_t blocks = at::divup(places, places_at_once), pieces = images * blocks;
  float* const results = y.mutable_data_ptr<float>();
  const int64_t grain = grain_of(pieces, images * places * work_of_a_place, elements_worth_a_wake);
  parallel_for(pieces, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> block(static_cast<size_t>(places_at_once * channels));
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t image = piece / blocks, first = piece % blocks * places_at_once;
      const int64_t count = std::min(places_at_once, places - first);
      std::fill(block.begin(), block.end(), 0.f);
      for (int64_t i = 0; i < count; ++i) compute(image, first + i, block.data() + i * channels);
      float* to = results + image * channels * places + first;
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t i = 0; i < count; ++i) to[c * places + i] = block[static_cast<size_t>(i * channels + c)];
      }
    }
  });
}

const char* reason_against_sum(at::TensorList images, at::TensorList grids, const at::Tensor& weights, bool stacked) {
  constexpr int64_t least_channels = 32;
  const at::Tensor &image = images.front(), &grid = grids.front();
  if (image.size(1) < least_channels) return "it has few channels";
  int64_t columns = 0;
  for (size_t i = 0; i < images.size(); ++i) {
    if (images[i].size(0) != image.size(0) || images[i].size(1) != image.size(1) || grids[i].size(1) != grid.size(1) ||
        (stacked && grids[i].size(2) != grid.size(2))) {
      return "the images do not go together";
    }
    columns += grids[i].size(2);
  }
  if (!is_plain_cpu_float(weights)) return "its weights are not a float32 CPU tensor";
  if (wants_gradient(weights)) return "its weights require a gradient";
  if (weights.sizes() != at::IntArrayRef{image.size(0), 1, grid.size(1), columns})
    return "its weights differ by channel";
  // Outside of the image nothing is read that they could be multiplied with.
  for (int64_t image = 0; image < weights.size(0); ++image) {
    for (int64_t row = 0; row < weights.size(2); ++row) {
      const float* weight = weights.const_data_ptr<float>() + image * weights.stride(0) + row * weights.stride(2);
      for (int64_t i = 0; i < columns; ++i) {
        if (!std::isfinite(weight[i * weights.stride(3)])) return "a weight is not finite";
      }
    }
  }
  return nullptr;
}

at::Tensor sampled_sum(const std::vector<at::Tensor>& images, const std::vector<at::Tensor>& grids,
                       const at::Tensor& weights, int64_t interpolation_mode, int64_t padding_mode, bool align_corners,
                       bool stacked) {
  TORCH_CHECK(!images.empty() && images.size() == grids.size(),
              "ipex::sampled_sum: expected as many grids as images, got ", grids.size(), " and ", images.size(),
              damaged);
  const char* reason = nullptr;
  for (size_t i = 0; i < images.size() && !reason; ++i) {
    reason = reason_against_sampling(images[i], grids[i], interpolation_mode, padding_mode);
  }
  if (!reason) reason = reason_against_sum(images, grids, weights, stacked);
  if (reason) {
    const LeftToAten left(reason, "ipex::sampled_sum");
    std::vector<at::Tensor> samples;
    for (size_t i = 0; i < images.size(); ++i) {
      samples.push_back(at::grid_sampler(images[i], grids[i], interpolation_mode, padding_mode, align_corners));
    }
    const at::Tensor joined = stacked ? at::stack(samples, -2).flatten(-2) : at::cat(samples, -1);
    return at::sum(at::mul(joined, weights), {-1});
  }
  const Samplings samplings(images, grids, padding_mode, align_corners);
  const int64_t rows = weights.size(2), columns = weights.size(3), channels = images.front().size(1);
  const at::Tensor y = empty_result({weights.size(0), channels, rows}, images.front().options());
  const float* const factors = weights.const_data_ptr<float>();
  for_each_place(y, rows, channels * columns, [&](int64_t image, int64_t row, float* to) {
    const float* factor = factors + image * weights.stride(0) + row * weights.stride(2);
    for (const Sampling& sampling : samplings) {
      for (int64_t i = 0; i < sampling.columns(); ++i) {
        sampling.add(image, row, i, *factor, to);
        factor += weights.stride(3);
      }
    }
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "sampled_sum(Tensor[] images, Tensor[] grids, Tensor weights, int interpolation_mode, int padding_mode, "
         "bool align_corners, bool stacked) -> Tensor",
         sampled_sum);
}

}  // namespace
}  // namespace ipex::runtime
