#include "ops/convolution/winograd.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <vector>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "memory/weight_memory.h"
#include "ops/convolution/winograd_cut.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// [panel][channels][9][panel_columns] of a weight [columns][channels][3][3].
at::Tensor windows_in_panels(const at::Tensor& weight) {
  const int64_t columns = weight.size(0), channels = weight.size(1), panel = kernels().winograd.panel_columns;
  const at::Tensor dense = weight.contiguous(),
                   ordered = empty_weight({columns / panel, channels, 9, panel}, at::kFloat);
  const float* from = dense.const_data_ptr<float>();
  float* to = ordered.data_ptr<float>();
  at::parallel_for(0, columns / panel * channels, /*grain_size=*/64, [&](int64_t first, int64_t last) {
    for (int64_t line = first; line < last; ++line) {
      for (int64_t c = 0; c < panel; ++c) {
        const float* own = from + ((line / channels * panel + c) * channels + line % channels) * 9;
        for (int64_t pixel = 0; pixel < 9; ++pixel) to[(line * 9 + pixel) * panel + c] = own[pixel];
      }
    }
  });
  return ordered;
}

// [36][panel][channels][panel_columns] of a weight [columns][channels][3][3], rounded once.
at::Tensor transformed_weight(const at::Tensor& weight) {
  const at::Tensor ordered = windows_in_panels(weight);
  const int64_t columns = weight.size(0), channels = weight.size(1), panel = kernels().winograd.panel_columns;
  const at::Tensor transformed = empty_weight({places_of_a_tile, columns / panel, channels, panel}, at::kFloat);
  const float* from = ordered.const_data_ptr<float>();
  float* to = transformed.data_ptr<float>();
  at::parallel_for(0, columns / panel * channels, /*grain_size=*/64, [&](int64_t first, int64_t last) {
    kernels().winograd.transform(from + first * 9 * panel, last - first, to + first * panel, columns * channels);
  });
  return transformed;
}

// Of a result [images, columns, height, width].
int64_t tile_count(at::IntArrayRef sizes, at::IntArrayRef dilation) {
  return sizes[0] * TilesOfSide(sizes[2], dilation[0]).count() * TilesOfSide(sizes[3], dilation[1]).count();
}

}  // namespace

Winograd::Winograd(c10::function_ref<at::Tensor()> weight, int64_t channels, int64_t columns, Form form,
                   const StoredForms& stored)
    : form_(form) {
  const int64_t panel = kernels().winograd.panel_columns, panels = columns / panel;
  if (form == Form::transformed) {
    weight_ =
        stored.get(c10::str("winograd, ", panel, " columns"), {at::kFloat, {places_of_a_tile, panels, channels, panel}},
                   [&] { return transformed_weight(weight()); });
  } else {
    weight_ = stored.get(c10::str("winograd windows, ", panel, " columns"), {at::kFloat, {panels, channels, 9, panel}},
                         [&] { return windows_in_panels(weight()); });
  }
}

bool Winograd::has(int64_t channels, int64_t columns) {
  const int64_t panel = kernels().winograd.panel_columns;
  return channels % (panel / 2) == 0 && columns % panel == 0;
}

std::optional<Winograd::Form> Winograd::form_for(int64_t channels, int64_t columns, at::IntArrayRef result_sizes,
                                                 at::IntArrayRef dilation) {
  // With less to multiply, going from one basis into the other costs more than it saves.
  constexpr int64_t least_products = 32 * 32, least_tiles = 16;
  // A tile has room for 16. Thin images have fewer, and so do wide dilations, which leave a few results for each convolution
  // without one.
  constexpr int64_t least_results_of_a_tile = 8;
  const int64_t tiles = tile_count(result_sizes, dilation);
  const int64_t results = result_sizes[0] * result_sizes[2] * result_sizes[3];
  if (channels * columns < least_products || tiles < least_tiles || results < least_results_of_a_tile * tiles)
    return {};
  // What a model may grow by. For windows it is the tiles once more that each byte is worth.
  constexpr int64_t bytes_worth_a_tile = 48 * 1024, window_bytes_worth_a_tile = 4 * 1024;
  constexpr int64_t least_tiles_for_windows = 48;  // or transforming takes as long as multiplying
  const int64_t weights = static_cast<int64_t>(sizeof(float)) * channels * columns;
  if (places_of_a_tile * weights <= bytes_worth_a_tile * tiles) return Form::transformed;
  const bool pays = tiles >= least_tiles_for_windows && 9 * weights <= window_bytes_worth_a_tile * tiles * tiles;
  return pays ? std::optional(Form::windows) : std::nullopt;
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
                                 .weights = form_ == Form::transformed ? weight_.const_data_ptr<float>() : nullptr,
                                 .windows = form_ == Form::windows ? weight_.const_data_ptr<float>() : nullptr,
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
