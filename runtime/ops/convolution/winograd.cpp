#include "ops/convolution/winograd.h"

#include <ATen/ATen.h>

#include <atomic>
#include <vector>

#include "isa/isa.h"
#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "memory/weight_memory.h"
#include "ops/convolution/convolution.h"
#include "ops/convolution/winograd_cut.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

int64_t panels_of_a_group(const WinogradSize& size) {
  return parts_that_cover(size.columns, kernels().winograd.panel_columns);
}

// [group][panel][channels][9][panel_columns] of a weight [group * columns][channels][3][3].
at::Tensor windows_in_panels(const at::Tensor& weight, const WinogradSize& size) {
  const int64_t panels = panels_of_a_group(size), panel = kernels().winograd.panel_columns;
  const at::Tensor dense = weight.contiguous(),
                   ordered = empty_weight({size.groups, panels, size.channels, 9, panel}, at::kFloat);
  const float* from = dense.const_data_ptr<float>();
  float* to = ordered.data_ptr<float>();
  parallel_for(size.groups * panels * size.channels, /*grain_size=*/64, [&](int64_t first, int64_t last) {
    for (int64_t line = first; line < last; ++line) {
      const int64_t channel = line % size.channels, group = line / size.channels / panels;
      const int64_t column = line / size.channels % panels * panel;
      for (int64_t c = 0; c < panel; ++c) {
        const bool exists = column + c < size.columns;
        const float* own = from + ((group * size.columns + column + c) * size.channels + channel) * 9;
        for (int64_t pixel = 0; pixel < 9; ++pixel) to[(line * 9 + pixel) * panel + c] = exists ? own[pixel] : 0;
      }
    }
  });
  return ordered;
}

// [group][36][panel][channels][panel_columns] of a weight [group * columns][channels][3][3], rounded once.
at::Tensor transformed_weight(const at::Tensor& weight, const WinogradSize& size) {
  const at::Tensor ordered = windows_in_panels(weight, size);
  const int64_t panels = panels_of_a_group(size), panel = kernels().winograd.panel_columns;
  const at::Tensor transformed =
      empty_weight({size.groups, places_of_a_tile, panels, size.channels, panel}, at::kFloat);
  const float* from = ordered.const_data_ptr<float>();
  float* to = transformed.data_ptr<float>();
  const int64_t lines = panels * size.channels;  // of a group
  parallel_for(size.groups * lines, /*grain_size=*/64, [&](int64_t first, int64_t last) {
    for (int64_t line = first, end; line < last; line = end) {
      const int64_t group = line / lines;
      end = std::min(last, (group + 1) * lines);
      kernels().winograd.transform(from + line * 9 * panel, end - line,
                                   to + (group * (places_of_a_tile - 1) * lines + line) * panel, lines * panel);
    }
  });
  return transformed;
}

// Of a result [images, columns, height, width].
int64_t tile_count(at::IntArrayRef sizes, at::IntArrayRef dilation) {
  return sizes[0] * TilesOfSide(sizes[2], dilation[0]).count() * TilesOfSide(sizes[3], dilation[1]).count();
}

}  // namespace

Winograd::Winograd(c10::function_ref<at::Tensor()> weight, const WinogradSize& size, Form form,
                   const StoredForms& stored)
    : size_(size), form_(form) {
  const int64_t panel = kernels().winograd.panel_columns, panels = panels_of_a_group(size);
  const auto text = [&](const char* kind) { return c10::str(kind, ", ", size.groups, " groups, ", panel, " columns"); };
  if (form == Form::transformed) {
    weight_ = stored.get(text("winograd"), {at::kFloat, {size.groups, places_of_a_tile, panels, size.channels, panel}},
                         [&] { return transformed_weight(weight(), size); });
  } else {
    weight_ = stored.get(text("winograd windows"), {at::kFloat, {size.groups, panels, size.channels, 9, panel}},
                         [&] { return windows_in_panels(weight(), size); });
  }
}

bool WinogradSize::is_worth_it() const {
  constexpr int64_t least_products = 32 * 32;
  return channels * columns >= least_products;
}

std::optional<Winograd::Form> Winograd::form_for(const WinogradSize& size, at::IntArrayRef result_sizes,
                                                 at::IntArrayRef dilation) {
  constexpr int64_t least_tiles = 16;
  // A tile has room for 16. Thin images have fewer, and so do wide dilations, which leave a few results for each convolution
  // without one.
  constexpr int64_t least_results_of_a_tile = 8;
  const int64_t tiles = tile_count(result_sizes, dilation);
  const int64_t results = result_sizes[0] * result_sizes[2] * result_sizes[3];
  if (!size.is_worth_it() || tiles < least_tiles || results < least_results_of_a_tile * tiles) return {};
  // What a model may grow by. For windows it is the tiles once more that each byte is worth.
  constexpr int64_t bytes_worth_a_tile = 48 * 1024, window_bytes_worth_a_tile = 4 * 1024;
  constexpr int64_t least_tiles_for_windows = 48;  // or transforming takes as long as multiplying
  const int64_t weights = static_cast<int64_t>(sizeof(float)) * size.groups * size.channels * size.columns;
  if (places_of_a_tile * weights <= bytes_worth_a_tile * tiles) return Form::transformed;
  const bool pays = tiles >= least_tiles_for_windows && 9 * weights <= window_bytes_worth_a_tile * tiles * tiles;
  return pays ? std::optional(Form::windows) : std::nullopt;
}

bool Winograd::convolve(const at::Tensor& image, at::IntArrayRef padding, at::IntArrayRef dilation,
                        const ElementwiseSteps& steps, const at::Tensor& result) const {
  const WinogradConvolution work{.image = image.const_data_ptr<float>(),
                                 .height = image.size(2),
                                 .width = image.size(3),
                                 .pixel_stride = pixel_stride(image),
                                 .groups = size_.groups,
                                 .channels = size_.channels,
                                 .columns = size_.columns,
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
  const int64_t panels = panels_of_a_group(size_);
  const ProductParts parts = winograd_parts(tiles, size_.columns, kernel.panel_columns, part_count());
  std::atomic<bool> is_finite = true;
  parallel_for(parts.rows * parts.panels, /*grain_size=*/1, [&](int64_t first, int64_t last) {
    const at::Tensor memory = scratch(sizeof(float) * kernel.scratch_size(work));
    for (int64_t part = first; part < last; ++part) {
      const int64_t i = part / parts.panels, j = part % parts.panels;
      if (!kernel.convolve(work, tiles * i / parts.rows, tiles * (i + 1) / parts.rows, panels * j / parts.panels,
                           panels * (j + 1) / parts.panels, static_cast<float*>(memory.data_ptr()))) {
        is_finite = false;
      }
    }
  });
  return is_finite;
}

const ConvolutionContext::Algorithm ConvolutionContext::winograd{
    "winograd",
    [](const Call& call) {
      const ConvolutionContext& layer = call.layer;
      if (const char* reason = layer.reason_against_own_kernels()) return reason;
      if (!layer.has_windows_of(3) || !layer.moves_by_one()) return "its windows are not 3x3 and one pixel apart";
      if (!layer.group_size().is_worth_it()) return "it has few channels";
      if (isa::is_in_use(isa::Level::AMX) && !rounded_windows.reason_against(call)) return "tiles multiply faster";
      return layer.winograd_form(call) ? nullptr : "its image is small, beside its weight or its dilation";
    },
    [](Call& call) {
      const ConvolutionContext& layer = call.layer;
      const auto& kernel = layer.weight().derived<Winograd>([&] {
        const auto plain = [&] { return layer.plain_weight(); };
        return std::make_unique<const Winograd>(plain, layer.group_size(), *layer.winograd_form(call),
                                                layer.stored_forms());
      });
      return layer.compute(call, [&](const ElementwiseSteps& steps, const at::Tensor& result) {
        const ConvolutionGeometry& geometry = layer.geometry_;
        return kernel.convolve(call.image_in_pixels(), geometry.begin, geometry.dilation, steps, result);
      });
    }};

WinogradSize ConvolutionContext::group_size() const {
  return {geometry_.groups, input_channels() / geometry_.groups, output_channels() / geometry_.groups};
}

std::optional<Winograd::Form> ConvolutionContext::winograd_form(const Call& call) const {
  return Winograd::form_for(group_size(), call.result_sizes, geometry_.dilation);
}

}  // namespace ipex::runtime
