// Normalisation of groups of channels over an image, and the activation that follows it.
//
//   ipex::group_norm(x, groups, weight, bias, eps, post_ops, eager_layout=True) -> y
//     of rows of samples (three dimensions) aten's result is contiguous. Without eager_layout it lies as x does.
//   ipex::native_group_norm(x, weight, bias, batch, channels, pixels, groups, eps, post_ops) -> y
//     aten's first result; aten's other two are the statistics.
//   ipex::instance_norm(x, weight, bias, eps, post_ops, eager_layout) -> y
//     each channel is a group, as in aten where the statistics are the input's. aten's result is always contiguous. In a
//     stretch that runs channels-last (passes/layout) eager_layout is false, and y keeps the layout of x.
//   post_ops: activations.h.
//
// The kernels take float32, bfloat16 and float16, contiguous and channels-last. Statistics are taken around a number near
// each group's mean and added up in double, so that the layout makes no difference to the digits. (aten adds squares of
// channels-last images in float32 and loses some.) All else, and what is not finite, aten computes on a contiguous copy;
// a profiler shows it, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "ops/norms/activations.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

const GroupNormKernels& kernels_for(at::ScalarType dtype) {
  const GroupNormFormats& formats = kernels().group_norm;
  return dtype == at::kFloat ? formats.floats : dtype == at::kBFloat16 ? formats.bfloat16 : formats.float16;
}

bool has_kernels(at::ScalarType dtype) { return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf; }

// A number per channel, or one for all where the norm has none.
class Parameter {
 public:
  Parameter(const OptionalTensor& tensor, float otherwise) : otherwise_(otherwise) {
    if (!tensor || !tensor->defined()) return;
    floats_ = tensor->to(at::kFloat);
    data_ = floats_.const_data_ptr<float>();
  }

  // result[i] = factor * that of channel `first + i`.
  void multiply(int64_t first, int64_t count, double factor, float* result) const {
    if (!data_) return static_cast<void>(std::fill_n(result, count, static_cast<float>(factor * otherwise_)));
    for (int64_t i = 0; i < count; ++i) result[i] = static_cast<float>(factor * data_[first + i]);
  }

 private:
  at::Tensor floats_;
  const float* data_ = nullptr;
  float otherwise_;
};

// What is normalised, and by what.
struct GroupNorm {
  int64_t groups;
  OptionalTensor weight, bias;
  double eps;

  const char* reason_for_aten(const at::Tensor& x) const;
};

const char* GroupNorm::reason_for_aten(const at::Tensor& x) const {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (!has_kernels(x.scalar_type()) || !is_plain_cpu(x)) return "its input is no CPU tensor of float32 or 16 bits";
  if (x.dim() < 2 || x.numel() == 0) return "its input is empty, or has no channels";
  if (wants_gradient(x)) return "its input requires a gradient";
  const int64_t channels = x.size(1);
  if (groups <= 0 || channels % groups != 0) return "the groups do not fit the channels";
  std::optional<at::ScalarType> dtype;
  for (const OptionalTensor* parameter : {&weight, &bias}) {
    const at::Tensor tensor = parameter->value_or(at::Tensor());
    if (!tensor.defined()) continue;
    if (!is_plain_cpu(tensor) || !tensor.is_contiguous()) return "a parameter is not a plain CPU tensor";
    if (tensor.scalar_type() != dtype.value_or(tensor.scalar_type())) return "its parameters are of two dtypes";
    dtype = tensor.scalar_type();
    if (dtype != at::kFloat && dtype != x.scalar_type()) return "a parameter is of another dtype";
    if (wants_gradient(tensor)) return "a parameter requires a gradient";
    if (tensor.dim() != 1 || tensor.size(0) != channels) return "a parameter has another size";
  }
  return nullptr;
}

// One call. The work is cut into parts, some groups of one image each, and these into pieces, the same whatever the number
// of threads is.
class Call {
 public:
  // x and y are dense in the same format.
  Call(const at::Tensor& x, const at::Tensor& y, const GroupNorm& norm, const ElementwiseSteps& steps)
      : kernels_(kernels_for(x.scalar_type())),
        weight_(norm.weight, 1),
        bias_(norm.bias, 0),
        eps_(norm.eps),
        steps_(steps),
        from_(static_cast<const char*>(x.const_data_ptr())),
        to_(static_cast<char*>(y.mutable_data_ptr())),
        item_(static_cast<int64_t>(x.itemsize())),
        images_(x.size(0)),
        channels_(x.size(1)),
        pixels_(x.numel() / (images_ * channels_)),
        groups_(norm.groups),
        width_(channels_ / groups_),
        by_pixels_(!x.is_contiguous()),
        maps_(at::empty({images_, 3, channels_}, at::kFloat)) {
    // Whole pixels lie side by side; where there are few of them, threads share their channels. The sum of a channel over
    // the pixels of a piece is a float.
    constexpr int64_t many_pixels = 2048, channels_of_part = 128, pixels_of_piece = 256, elements_of_piece = 16384;
    const int64_t groups_side_by_side =
        pixels_ >= many_pixels ? groups_ : std::clamp<int64_t>(channels_of_part / width_, 1, groups_);
    groups_of_part_ = by_pixels_ ? groups_side_by_side : 1;
    piece_ = by_pixels_ ? pixels_of_piece : elements_of_piece;
    pieces_ = at::divup(by_pixels_ ? pixels_ : pixels_ * width_, piece_);
    parts_ = at::divup(groups_, groups_of_part_);
  }

  // False where a group is not finite.
  bool run() {
    if (pieces_ == 1) {
      run_part_by_part();
    } else {
      // Few images at a time, so that they are in cache when they are read again.
      constexpr int64_t elements_at_once = 1 << 19;
      const int64_t at_once = std::max<int64_t>(1, elements_at_once / (channels_ * pixels_));
      for (int64_t first = 0; first < images_ && finite_; first += at_once) {
        run_piece_by_piece(first * parts_, std::min(images_, first + at_once) * parts_);
      }
    }
    return finite_;
  }

 private:
  template <typename Do>
  static void in_parallel(int64_t count, int64_t elements, Do&& act) {
    constexpr int64_t elements_worth_waking = 16384;
    parallel_for(count, grain_of(count, count * elements, elements_worth_waking), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) act(i);
    });
  }

  int64_t image_of(int64_t part) const { return part / parts_; }
  int64_t first_group_of(int64_t part) const { return part % parts_ * groups_of_part_; }
  int64_t group_count_of(int64_t part) const { return std::min(groups_of_part_, groups_ - first_group_of(part)); }
  int64_t elements_of_part() const { return groups_of_part_ * width_ * pixels_; }

  enum Map { around, scale, shift };
  float* map_of(int64_t part, Map which) {
    return maps_.mutable_data_ptr<float>() + (image_of(part) * 3 + which) * channels_ + first_group_of(part) * width_;
  }

  // Where the part begins, in elements.
  int64_t start_of(int64_t part) const {
    return image_of(part) * channels_ * pixels_ + first_group_of(part) * width_ * (by_pixels_ ? 1 : pixels_);
  }

  void run_part_by_part() {
    in_parallel(images_ * parts_, elements_of_part(), [&](int64_t part) {
      c10::SmallVector<DistanceSums, 32> sums(groups_of_part_);
      guess(part);
      sum(part, 0, sums.data());
      if (!finish(part, sums.data(), /*may_repeat=*/true)) {
        std::fill(sums.begin(), sums.end(), DistanceSums());
        sum(part, 0, sums.data());
        finish(part, sums.data(), /*may_repeat=*/false);
      }
      normalize(part, 0);
    });
  }

  void run_piece_by_piece(int64_t first_part, int64_t last_part) {
    const int64_t parts = last_part - first_part;
    for (int64_t part = first_part; part < last_part; ++part) guess(part);
    for (const bool may_repeat : {true, false}) {
      std::vector<DistanceSums> sums(parts * pieces_ * groups_of_part_);
      in_parallel(parts * pieces_, piece_ * (by_pixels_ ? groups_of_part_ * width_ : 1),
                  [&](int64_t i) { sum(first_part + i / pieces_, i % pieces_, &sums[i * groups_of_part_]); });
      bool finished = true;
      for (int64_t part = first_part; part < last_part; ++part) {
        finished &= finish(part, &sums[(part - first_part) * pieces_ * groups_of_part_], may_repeat);
      }
      if (finished) break;
    }
    in_parallel(parts * pieces_, piece_ * (by_pixels_ ? groups_of_part_ * width_ : 1),
                [&](int64_t i) { normalize(first_part + i / pieces_, i % pieces_); });
  }

  // A number near the mean of each group, from some elements all over it.
  void guess(int64_t part) {
    const int64_t count = width_ * pixels_, samples = std::min<int64_t>(count, 16);
    for (int64_t group = 0; group < group_count_of(part); ++group) {
      double total = 0;
      for (int64_t i = 0; i < samples; ++i) {
        const int64_t at = by_pixels_ ? i * pixels_ / samples * channels_ + group * width_ + i % width_
                                      : group * count + i * count / samples;
        total += kernels_.element(from_, start_of(part) + at);
      }
      std::fill_n(map_of(part, around) + group * width_, width_,
                  static_cast<float>(total / static_cast<double>(samples)));
    }
  }

  void sum(int64_t part, int64_t piece, DistanceSums* sums) {
    const int64_t first = piece * piece_;
    if (by_pixels_) {
      kernels_.sum_pixels(from_ + (start_of(part) + first * channels_) * item_, std::min(piece_, pixels_ - first),
                          channels_, group_count_of(part), width_, map_of(part, around), sums);
    } else {
      kernels_.sum_run(from_ + (start_of(part) + first) * item_, std::min(piece_, width_ * pixels_ - first),
                       *map_of(part, around), *sums);
    }
  }

  // From the sums of its pieces. False, and better guesses, where one was so far from the mean that digits were lost.
  bool finish(int64_t part, const DistanceSums* sums, bool may_repeat) {
    bool finished = true;
    for (int64_t group = 0; group < group_count_of(part); ++group) {
      DistanceSums total;
      for (int64_t piece = 0; piece < pieces_; ++piece) {
        total.distance += sums[piece * groups_of_part_ + group].distance;
        total.square += sums[piece * groups_of_part_ + group].square;
      }
      const double count = static_cast<double>(width_ * pixels_), correction = total.distance / count;
      const double difference = total.square / count - correction * correction;
      const double variance = difference < 0 ? 0 : difference;
      constexpr double far_in_deviations = 2;
      float* middle = map_of(part, around) + group * width_;
      if (may_repeat && std::abs(correction) > far_in_deviations * std::sqrt(variance)) {
        std::fill_n(middle, width_, static_cast<float>(*middle + correction));
        finished = false;
        continue;
      }
      set_maps(part, group, correction, 1 / std::sqrt(variance + eps_));
    }
    return finished;
  }

  void set_maps(int64_t part, int64_t group, double correction, double deviations) {
    constexpr float large = 1e30F;
    float *to_scale = map_of(part, scale) + group * width_, *to_shift = map_of(part, shift) + group * width_;
    const int64_t first_channel = (first_group_of(part) + group) * width_;
    weight_.multiply(first_channel, width_, deviations, to_scale);
    bias_.multiply(first_channel, width_, 1, to_shift);
    bool ordinary = true;
    for (int64_t c = 0; c < width_; ++c) {
      to_shift[c] -= static_cast<float>(correction * to_scale[c]);
      ordinary &= (std::abs(to_scale[c]) < large) & (std::abs(to_shift[c]) < large);
    }
    if (!ordinary) finite_ = false;
  }

  void normalize(int64_t part, int64_t piece) {
    const int64_t first = piece * piece_;
    if (by_pixels_) {
      const int64_t at = (start_of(part) + first * channels_) * item_;
      return kernels_.normalize_pixels(
          from_ + at, std::min(piece_, pixels_ - first), channels_, group_count_of(part) * width_,
          {map_of(part, around), map_of(part, scale), map_of(part, shift)}, steps_, to_ + at);
    }
    const int64_t at = (start_of(part) + first) * item_, channel = first / pixels_;
    kernels_.normalize_run(
        from_ + at, std::min(piece_, width_ * pixels_ - first), pixels_, first % pixels_,
        {map_of(part, around) + channel, map_of(part, scale) + channel, map_of(part, shift) + channel}, steps_,
        to_ + at);
  }

  const GroupNormKernels& kernels_;
  Parameter weight_, bias_;
  double eps_;
  ElementwiseSteps steps_;
  const char* from_;
  char* to_;
  int64_t item_, images_, channels_, pixels_, groups_, width_;
  bool by_pixels_;
  int64_t groups_of_part_, piece_, pieces_, parts_;
  at::Tensor maps_;  // a ChannelMaps of each image
  std::atomic<bool> finite_{true};
};

// `name` is the op's, and `in_aten(x)` what aten makes of a contiguous input.
template <typename InAten>
at::Tensor normalized(const char* name, const at::Tensor& x, at::MemoryFormat format, const GroupNorm& norm,
                      const std::vector<std::string>& texts, InAten&& in_aten) {
  const Activations activations(name, texts);
  const char* reason = norm.reason_for_aten(x);
  if (!reason) {
    KernelSteps::Room room;
    const at::Tensor dense = contiguous_result(x, format),
                     y = empty_result(x.sizes(), x.options().memory_format(format));
    if (Call(dense, y, norm, activations.steps(x.size(1), room)).run()) return activations.with_rest(y);
    reason = "a group is not finite";
  }
  const LeftToAten left(reason, name);
  return activations.with_all(in_aten(x.contiguous()).contiguous(format));
}

at::Tensor group_norm(const at::Tensor& x, int64_t groups, const OptionalTensor& weight, const OptionalTensor& bias,
                      double eps, const std::vector<std::string>& post_ops, bool eager_layout) {
  if (x.dim() == 3 && !eager_layout) {
    return group_norm(x.unsqueeze(2), groups, weight, bias, eps, post_ops, /*eager_layout=*/true).squeeze(2);
  }
  return normalized("ipex::group_norm", x, x.suggest_memory_format(), {groups, weight, bias, eps}, post_ops,
                    [&](const at::Tensor& dense) { return at::group_norm(dense, groups, weight, bias, eps); });
}

at::Tensor native_group_norm(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                             int64_t batch, int64_t channels, int64_t pixels, int64_t groups, double eps,
                             const std::vector<std::string>& post_ops) {
  const bool is_as_it_says =
      x.dim() >= 2 && x.size(0) == batch && x.size(1) == channels && x.numel() == batch * channels * pixels;
  if (is_as_it_says) return group_norm(x, groups, weight, bias, eps, post_ops, /*eager_layout=*/true);
  const LeftToAten left("the sizes are not those of its input", "ipex::native_group_norm");
  const at::Tensor y = std::get<0>(at::native_group_norm(x, weight, bias, batch, channels, pixels, groups, eps));
  return Activations("ipex::native_group_norm", post_ops).with_all(y);
}

at::Tensor instance_norm(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                         const std::vector<std::string>& post_ops, bool eager_layout) {
  const at::MemoryFormat format = eager_layout ? at::MemoryFormat::Contiguous : x.suggest_memory_format();
  const int64_t channels = x.dim() > 2 ? x.size(1) : 0;
  return normalized("ipex::instance_norm", x, format, {channels, weight, bias, eps}, post_ops,
                    [&](const at::Tensor& dense) {
                      return at::instance_norm(dense, weight, bias, {}, {}, /*use_input_stats=*/true, /*momentum=*/0,
                                               eps, /*cudnn_enabled=*/false);
                    });
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "group_norm(Tensor x, int groups, Tensor? weight, Tensor? bias, float eps, str[] post_ops, "
         "bool eager_layout=True) -> Tensor",
         group_norm);
  define(m,
         "native_group_norm(Tensor x, Tensor? weight, Tensor? bias, int batch, int channels, int pixels, int groups, "
         "float eps, str[] post_ops) -> Tensor",
         native_group_norm);
  define(
      m,
      "instance_norm(Tensor x, Tensor? weight, Tensor? bias, float eps, str[] post_ops, bool eager_layout) -> Tensor",
      instance_norm);
}

}  // namespace
}  // namespace ipex::runtime
