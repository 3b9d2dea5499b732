#include "ops/convolution/winograd.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <array>
#include <atomic>
#include <vector>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "memory/weight_memory.h"
#include "ops/convolution/winograd_cut.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

using Line = std::array<double, 3>;

// The values of a window's polynomial at the points 0, 3/4, -3/4, 3/2, -3/2 and infinity, divided by what the kernel
// multiplies them with when it goes back.
std::array<Line, pixels_of_a_tile_side> basis() {
  constexpr std::array<double, 5> points{0, 0.75, -0.75, 1.5, -1.5};
  std::array<Line, pixels_of_a_tile_side> lines{};
  for (size_t i = 0; i < points.size(); ++i) {
    double divisor = 1;
    for (size_t j = 0; j < points.size(); ++j) divisor *= j == i ? 1 : points[i] - points[j];
    lines[i] = {1 / divisor, points[i] / divisor, points[i] * points[i] / divisor};
  }
  lines.back() = {0, 0, 1};
  return lines;
}

// [36][panel][channels][panel_columns] of a weight [columns][channels][3][3], rounded once.
at::Tensor transformed_weight(const at::Tensor& weight) {
  constexpr int64_t side = pixels_of_a_tile_side;
  const auto lines = basis();
  const int64_t columns = weight.size(0), channels = weight.size(1), panel = kernels().winograd.panel_columns;
  const at::Tensor dense = weight.contiguous();
  const float* from = dense.const_data_ptr<float>();
  const at::Tensor transformed = empty_weight({places_of_a_tile, columns / panel, channels, panel}, at::kFloat);
  float* to = transformed.data_ptr<float>();
  // Results of a panel lie next to one another, those of the next basis a power of two away: a panel is written at a time.
  at::parallel_for(0, columns / panel * channels, /*grain_size=*/64, [&](int64_t first, int64_t last) {
    std::vector<double> values(static_cast<size_t>(12 * panel));
    double *const window = values.data(), *const row = window + 9 * panel;  // [9][panel] and [3][panel]
    for (int64_t line = first; line < last; ++line) {
      for (int64_t c = 0; c < panel; ++c) {
        const float* own = from + ((line / channels * panel + c) * channels + line % channels) * 9;
        for (int64_t pixel = 0; pixel < 9; ++pixel) window[pixel * panel + c] = own[pixel];
      }
      for (int64_t i = 0; i < side; ++i) {
        for (int64_t x = 0; x < 3; ++x) {
          const double *const top = window + x * panel, *const middle = top + 3 * panel,
                              *const low = middle + 3 * panel;
          for (int64_t c = 0; c < panel; ++c) {
            row[x * panel + c] = lines[i][0] * top[c] + lines[i][1] * middle[c] + lines[i][2] * low[c];
          }
        }
        for (int64_t j = 0; j < side; ++j) {
          float* const own = to + (i * side + j) * columns * channels + line * panel;
          for (int64_t c = 0; c < panel; ++c) {
            own[c] = static_cast<float>(lines[j][0] * row[c] + lines[j][1] * row[panel + c] +
                                        lines[j][2] * row[2 * panel + c]);
          }
        }
      }
    }
  });
  return transformed;
}

// Of a result [images, columns, height, width].
int64_t tile_count(at::IntArrayRef sizes, at::IntArrayRef dilation) {
  return sizes[0] * TilesOfSide(sizes[2], dilation[0]).count() * TilesOfSide(sizes[3], dilation[1]).count();
}

}  // namespace

Winograd::Winograd(c10::function_ref<at::Tensor()> weight, int64_t channels, int64_t columns,
                   const StoredForms& stored) {
  const int64_t panel = kernels().winograd.panel_columns;
  transformed_ = stored.get(c10::str("winograd, ", panel, " columns"),
                            {at::kFloat, {places_of_a_tile, columns / panel, channels, panel}},
                            [&] { return transformed_weight(weight()); });
}

bool Winograd::has(int64_t channels, int64_t columns) {
  const int64_t panel = kernels().winograd.panel_columns;
  return channels % (panel / 2) == 0 && columns % panel == 0;
}

bool Winograd::is_worth_it(int64_t channels, int64_t columns, at::IntArrayRef result_sizes, at::IntArrayRef dilation,
                           bool is_kept) {
  // With less to multiply, going from one basis into the other costs more than it saves.
  constexpr int64_t least_products = 32 * 32, least_tiles = 16;
  // A tile has room for 16. Thin images have fewer, and so do wide dilations, which leave a few results for each convolution
  // without one.
  constexpr int64_t least_results_of_a_tile = 8;
  const int64_t tiles = tile_count(result_sizes, dilation);
  // What a model may grow by. Each tile saves time on each byte, so with twice the tiles a tile is worth twice the bytes.
  const int64_t bytes_worth_a_tile = 48 * 1024 / least_tiles * (is_kept ? tiles : least_tiles);
  const int64_t results = result_sizes[0] * result_sizes[2] * result_sizes[3];
  const auto bytes = static_cast<int64_t>(sizeof(float)) * places_of_a_tile * channels * columns;
  return channels * columns >= least_products && tiles >= least_tiles && results >= least_results_of_a_tile * tiles &&
         bytes <= bytes_worth_a_tile * tiles;
}

bool Winograd::convolve(const at::Tensor& image, at::IntArrayRef padding, at::IntArrayRef dilation,
                        const ElementwiseSteps& steps, const at::Tensor& result) const {
  const WinogradConvolution work{.image = image.const_data_ptr<float>(),
                                 .height = image.size(2),
                                 .width = image.size(3),
                                 .channels = image.size(1),
                                 .padding_top = padding[0],
                                 .padding_left = padding[1],
                                 .dilation_down = dilation[0],
                                 .dilation_across = dilation[1],
                                 .weights = transformed_.const_data_ptr<float>(),
                                 .steps = steps,
                                 .result = result.data_ptr<float>(),
                                 .result_height = result.size(2),
                                 .result_width = result.size(3)};
  const auto& kernel = kernels().winograd;
  const int64_t tiles = tile_count(result.sizes(), dilation);
  const int64_t columns = steps.columns, panels = columns / kernel.panel_columns;
  const ProductParts parts = winograd_parts(tiles, columns, kernel.panel_columns, thread_count());
  std::atomic<bool> is_finite = true;
  at::parallel_for(0, parts.rows * parts.panels, /*grain_size=*/1, [&](int64_t first, int64_t last) {
    const at::Tensor memory = scratch(sizeof(float) * kernel.scratch_size(work));
    for (int64_t part = first; part < last; ++part) {
      const int64_t i = part / parts.panels, j = part % parts.panels;
      const auto column = [&](int64_t of) { return panels * of / parts.panels * kernel.panel_columns; };
      if (!kernel.convolve(work, tiles * i / parts.rows, tiles * (i + 1) / parts.rows, column(j), column(j + 1),
                           static_cast<float*>(memory.data_ptr()))) {
        is_finite = false;
      }
    }
  });
  return is_finite;
}

}  // namespace ipex::runtime
