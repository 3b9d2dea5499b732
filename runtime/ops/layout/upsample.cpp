// Images made larger or smaller.
//
//   ipex::upsample_nearest2d(x, output_size, scale_factors, is_channels_last) -> Tensor
//   ipex::upsample_bilinear2d(x, output_size, align_corners, scale_factors, is_channels_last) -> Tensor
//   ipex::upsample_bicubic2d(x, output_size, align_corners, scale_factors, is_channels_last) -> Tensor
//
// As aten's ops, followed by restore_layout (layout.cpp) where is_channels_last is false: then the image is converted
// before, where it is much smaller, or else after. The kernels take float32 without gradients. Places and weights are
// computed as aten does, in float32; sums are rounded in another order. All else is left to aten; a profiler shows it, with
// the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

enum class Method { nearest, bilinear, bicubic };

struct Upsampling {
  Method method;
  const char* name;
  at::OptionalIntArrayRef output_size;
  bool align_corners;
  std::optional<at::ArrayRef<double>> scale_factors;

  at::Tensor in_aten(const at::Tensor& x) const {
    if (method == Method::nearest) return at::upsample_nearest2d(x, output_size, scale_factors);
    if (method == Method::bilinear) return at::upsample_bilinear2d(x, output_size, align_corners, scale_factors);
    return at::upsample_bicubic2d(x, output_size, align_corners, scale_factors);
  }
};

// Of one dimension: its pixels, those of the result, and the factor where it was given.
struct Stretch {
  int64_t from, to;
  double factor;  // or 0
};

// The taps of each place of a result.
class TapList {
 public:
  TapList(const Stretch& stretch, const Upsampling& upsampling) : stretch_(stretch) {
    const bool aligns = upsampling.align_corners;
    count_ = upsampling.method == Method::nearest ? 1 : upsampling.method == Method::bilinear ? 2 : 4;
    if (aligns) {
      step_ = stretch.to > 1 ? static_cast<float>(stretch.from - 1) / static_cast<float>(stretch.to - 1) : 0;
    } else {
      step_ = stretch.factor > 0 ? static_cast<float>(1 / stretch.factor)
                                 : static_cast<float>(stretch.from) / static_cast<float>(stretch.to);
    }
    for (int64_t i = 0; i < stretch.to; ++i) {
      if (upsampling.method == Method::nearest) {
        add_nearest(i);
      } else if (upsampling.method == Method::bilinear) {
        add_linear(i, aligns);
      } else {
        add_cubic(i, aligns);
      }
    }
  }

  Taps taps() const { return {count_, pixels_.data(), weights_.data()}; }

 private:
  void add(int64_t pixel, float weight) {
    pixels_.push_back(static_cast<int32_t>(std::clamp<int64_t>(pixel, 0, stretch_.from - 1)));
    weights_.push_back(weight);
  }

  void add_nearest(int64_t i) {
    // aten has ways of its own for these.
    if (stretch_.to == stretch_.from) return add(i, 1);
    if (stretch_.to == 2 * stretch_.from) return add(i / 2, 1);
    add(static_cast<int64_t>(std::floor(static_cast<float>(i) * step_)), 1);
  }

  // aten's compiler fuses the product and the difference.
  float place_of(int64_t i, bool aligns) const {
    return aligns ? step_ * static_cast<float>(i) : std::fma(step_, static_cast<float>(i) + 0.5f, -0.5f);
  }

  void add_linear(int64_t i, bool aligns) {
    if (stretch_.to == stretch_.from) {
      add(i, 1);
      return add(i, 0);
    }
    const float place = std::max(place_of(i, aligns), 0.0f);
    const int64_t pixel = std::min(static_cast<int64_t>(place), stretch_.from - 1);
    const float beyond = std::clamp(place - static_cast<float>(pixel), 0.0f, 1.0f);
    add(pixel, 1 - beyond);
    add(pixel + 1, beyond);
  }

  void add_cubic(int64_t i, bool aligns) {
    const float place = place_of(i, aligns), pixel = std::min(std::floor(place), static_cast<float>(stretch_.from - 1));
    const float beyond = std::clamp(place - pixel, 0.0f, 1.0f), before = 1 - beyond;
    constexpr float a = -0.75f;
    const auto near = [](float x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
    const auto far = [](float x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
    const auto first = static_cast<int64_t>(pixel) - 1;
    add(first, far(beyond + 1));
    add(first + 1, near(beyond));
    add(first + 2, near(before));
    add(first + 3, far(before + 1));
  }

  Stretch stretch_;
  int64_t count_;
  float step_;
  std::vector<int32_t> pixels_;
  std::vector<float> weights_;
};

std::optional<std::array<Stretch, 2>> stretches_of(const at::Tensor& x, const Upsampling& upsampling) {
  const auto& [output_size, factors] = std::pair(upsampling.output_size, upsampling.scale_factors);
  if (output_size.has_value() == factors.has_value()) return {};
  if ((output_size && output_size->size() != 2) || (factors && factors->size() != 2)) return {};
  std::array<Stretch, 2> found;
  for (size_t i = 0; i < 2; ++i) {
    const int64_t from = x.size(static_cast<int64_t>(i) + 2);
    const double to = output_size ? static_cast<double>((*output_size)[i]) : static_cast<double>(from) * (*factors)[i];
    if (!(to >= 1 && to <= std::numeric_limits<int32_t>::max())) return {};
    found[i] = {from, static_cast<int64_t>(to), factors ? (*factors)[i] : 0};
  }
  return found;
}

const char* reason_to_leave(const at::Tensor& x) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!is_plain_cpu_float(x)) return "its input is not a float32 CPU tensor";
  if (wants_gradient(x)) return "its input requires a gradient";
  if (x.dim() != 4 || x.numel() == 0) return "its input is no batch of images";
  return nullptr;
}

// Whether aten's ways differ from one layout to the other, for a factor that is not the quotient of the sizes.
bool is_ambiguous(const Stretch& s) {
  const bool has_own_way = s.to == s.from || s.to == 2 * s.from;
  return has_own_way && s.factor > 0 && s.factor * static_cast<double>(s.from) != static_cast<double>(s.to);
}

constexpr int64_t floats_worth_waking = 16384;

void resample_pixels(const at::Tensor& x, const Taps& vertical, const Taps& horizontal, const at::Tensor& y) {
  const int64_t channels = x.size(1), height = y.size(2), row = y.size(3) * channels, rows = y.size(0) * height;
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  parallel_for(rows, grain_of(rows, y.numel(), floats_worth_waking), [&](int64_t begin, int64_t end) {
    const at::Tensor line = scratch(static_cast<size_t>(x.size(3) * channels) * sizeof(float));
    for (int64_t i = begin; i < end; ++i) {
      kernels().resample.row_of_pixels(from + i / height * channels * x.size(2) * x.size(3), x.size(3), channels,
                                       vertical, horizontal, i % height, y.size(3),
                                       static_cast<float*>(line.data_ptr()), to + i * row);
    }
  });
}

void resample_planes(const at::Tensor& x, const Taps& vertical, const Taps& horizontal, const at::Tensor& y) {
  const int64_t height = y.size(2), width = y.size(3), rows = y.size(0) * y.size(1) * height;
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  parallel_for(rows, grain_of(rows, y.numel(), floats_worth_waking), [&](int64_t begin, int64_t end) {
    const at::Tensor lines = scratch(static_cast<size_t>(vertical.count * width) * sizeof(float));
    for (int64_t i = begin; i < end;) {
      const int64_t plane = i / height, first = i % height, count = std::min(end - i, height - first);
      kernels().resample.rows_of_plane(from + plane * x.size(2) * x.size(3), x.size(3), vertical, horizontal, first,
                                       first + count, width, static_cast<float*>(lines.data_ptr()), to + i * width);
      i += count;
    }
  });
}

at::Tensor upsample(const at::Tensor& x, const Upsampling& upsampling, bool is_channels_last) {
  const auto in_aten = [&](const char* reason) {
    const LeftToAten left(reason, upsampling.name);
    const at::Tensor y = upsampling.in_aten(x);
    return is_channels_last || y.layout() != at::kStrided ? y : with_format(y, at::MemoryFormat::Contiguous);
  };
  if (const char* reason = reason_to_leave(x)) return in_aten(reason);
  const auto stretches = stretches_of(x, upsampling);
  if (!stretches) return in_aten("its sizes are not those of an image");
  const auto& [vertical, horizontal] = *stretches;
  if (upsampling.method == Method::nearest && (is_ambiguous(vertical) || is_ambiguous(horizontal))) {
    return in_aten("its factors are not those of its sizes");
  }

  const at::MemoryFormat eager = is_channels_last ? x.suggest_memory_format() : at::MemoryFormat::Contiguous;
  // Planes pick numbers one by one: that pays where the image before is much smaller.
  constexpr int64_t times_worth_converting_before = 16;
  const bool is_much_larger =
      vertical.to * horizontal.to >= times_worth_converting_before * vertical.from * horizontal.from;
  const at::MemoryFormat format = is_much_larger ? eager : x.suggest_memory_format();
  const at::Tensor source = contiguous_result(x, format);
  const at::Tensor y =
      empty_result({x.size(0), x.size(1), vertical.to, horizontal.to}, x.options().memory_format(format));
  const TapList rows(vertical, upsampling), columns(horizontal, upsampling);
  if (y.is_contiguous()) {
    resample_planes(source.contiguous(), rows.taps(), columns.taps(), y);
  } else {
    resample_pixels(source, rows.taps(), columns.taps(), y);
  }
  return format == eager ? y : with_format(y, eager);
}

at::Tensor upsample_nearest2d(const at::Tensor& x, at::OptionalIntArrayRef output_size,
                              std::optional<at::ArrayRef<double>> scale_factors, bool is_channels_last) {
  return upsample(x, {Method::nearest, "ipex::upsample_nearest2d", output_size, false, scale_factors},
                  is_channels_last);
}

at::Tensor upsample_bilinear2d(const at::Tensor& x, at::OptionalIntArrayRef output_size, bool align_corners,
                               std::optional<at::ArrayRef<double>> scale_factors, bool is_channels_last) {
  return upsample(x, {Method::bilinear, "ipex::upsample_bilinear2d", output_size, align_corners, scale_factors},
                  is_channels_last);
}

at::Tensor upsample_bicubic2d(const at::Tensor& x, at::OptionalIntArrayRef output_size, bool align_corners,
                              std::optional<at::ArrayRef<double>> scale_factors, bool is_channels_last) {
  return upsample(x, {Method::bicubic, "ipex::upsample_bicubic2d", output_size, align_corners, scale_factors},
                  is_channels_last);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(
      m,
      "upsample_nearest2d(Tensor x, int[]? output_size, float[]? scale_factors, bool is_channels_last=True) -> Tensor",
      upsample_nearest2d);
  define(m,
         "upsample_bilinear2d(Tensor x, int[]? output_size, bool align_corners, float[]? scale_factors, "
         "bool is_channels_last=True) -> Tensor",
         upsample_bilinear2d);
  define(m,
         "upsample_bicubic2d(Tensor x, int[]? output_size, bool align_corners, float[]? scale_factors, "
         "bool is_channels_last=True) -> Tensor",
         upsample_bicubic2d);
}

}  // namespace
}  // namespace ipex::runtime
