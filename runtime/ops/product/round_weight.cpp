//   ipex::round_weight(weight, format, group_size, symmetric) -> (codes, scales, offsets, values)
//
// 8 bits: the largest number of a group gets the largest code. 4 bits: of some shares of a group's range the one that leaves
// the least sum of squared errors. Each is followed by fits: with the codes that were found, the scale, and where it is free the
// offset, of least squares; then the codes for these; until nothing is gained. So the error is never above that of the
// whole range.
#include "ops/product/round_weight.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/tile_product.h"
#include "packed/door.h"
#include "packed/expect_tensor.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr double smallest = std::numeric_limits<float>::min();  // whose inverse is finite

constexpr double shares[] = {1, 0.9, 0.8};
constexpr int most_fits = 8;
// A fit that leaves more of the error than this was the last.
constexpr double worth_a_fit = 0.99;

using Lanes = float __attribute__((vector_size(16)));
using PlacesInTable = int32_t __attribute__((vector_size(16)));
constexpr int64_t lanes = 4;

// Codes are integers of -8 to 7.
struct FourBits {
  static constexpr double largest = 7.5;
  // Of numbers over their scale, as floats.
  static Lanes codes(const Lanes& x) {
    constexpr float to_integers = 0x1.8p23f;
    const Lanes not_below = x > -8.f ? x : Lanes{} - 8.f, inside = not_below < 7.f ? not_below : Lanes{} + 7.f;
    return (inside + to_integers) - to_integers;
  }
  static Lanes values(const Lanes& codes) { return codes; }
};

// Codes are places in a table that rises.
struct ValuesOfTable {
  explicit ValuesOfTable(const float* values) : values_(values), largest(values[numbers_of_a_table - 1]) {
    for (int64_t i = 0; i + 1 < numbers_of_a_table; ++i) middles_[i] = (values[i] + values[i + 1]) / 2;
  }
  Lanes codes(const Lanes& x) const {
    PlacesInTable place{};
    for (const float middle : middles_) place -= x > middle;
    return __builtin_convertvector(place, Lanes);
  }
  Lanes values(const Lanes& codes) const {
    Lanes values;
    for (int64_t i = 0; i < lanes; ++i) values[i] = values_[static_cast<int64_t>(codes[i])];
    return values;
  }

 private:
  const float* values_;
  std::array<float, numbers_of_a_table - 1> middles_;

 public:
  const double largest;
};

// number = value of the code * scale + shift
struct Line {
  double scale, shift;
};

// What the shift may be: any, or a whole number of scales.
struct Shift {
  bool is_free;
  double scales;
};

template <typename Codes>
class Group {
 public:
  explicit Group(const Codes& codes) : codes_(codes) {}

  void read(const float* from, int64_t count) {
    const auto [low, high] = std::minmax_element(from, from + count);
    low_ = *low;
    high_ = *high;
    count_ = count;
    const int64_t padded = at::divup(count, lanes) * lanes;
    numbers_.assign(padded, 0.f);
    for (int64_t lane = 0; lane < lanes; ++lane) there_[lane] = lane < count % lanes ? 1.f : 0.f;
    // Less their middle: sums round less.
    middle_ = low_ / 2 + high_ / 2;
    sum_ = 0;
    for (int64_t i = 0; i < count; ++i) {
      numbers_[i] = static_cast<float>(from[i] - middle_);
      sum_ += numbers_[i];
    }
  }

  double low() const { return low_; }
  double high() const { return high_; }

  // Tries a line through the numbers, and its fits. A shift is that of the numbers, not of what is left of them.
  void try_line(Line line, const Shift& shift) {
    double last_error = std::numeric_limits<double>::infinity();
    for (int fits = 0; fits <= most_fits; ++fits) {
      const Sums sums = sums_of(line);
      if (!has_best_ || sums.error < best_error_) {
        best_ = line;
        best_error_ = sums.error;
        has_best_ = true;
      }
      if (!(sums.error < last_error * worth_a_fit)) return;
      last_error = sums.error;
      const Line fitted = fit(line, shift, sums);
      if (!std::isfinite(fitted.scale) || !std::isfinite(fitted.shift) || std::abs(fitted.scale) < least_scale())
        return;
      line = fitted;
    }
  }

  // So that offsets stay small, where all numbers of a group are nearly the same.
  double least_scale() const { return std::max(smallest, std::max(std::abs(low_), std::abs(high_)) * 0x1p-16); }

  Line best() {
    has_best_ = false;
    return best_;
  }

  void write_codes(const Line& line, int8_t* to) const {
    const auto [inverse, start] = over(line);
    for (int64_t i = 0; i < count_; i += lanes) {
      const Lanes codes = codes_.codes(scaled(inverse, start, i));
      for (int64_t lane = 0; lane < std::min(lanes, count_ - i); ++lane)
        to[i + lane] = static_cast<int8_t>(codes[lane]);
    }
  }

 private:
  struct Sums {
    double values, squares, products, error;  // products: with the numbers
  };

  static Lanes load(const std::vector<float>& from, int64_t i) {
    Lanes lanes;
    __builtin_memcpy(&lanes, &from[i], sizeof(lanes));
    return lanes;
  }
  static double sum_of(const Lanes& x) { return (double{x[0]} + x[1]) + (double{x[2]} + x[3]); }

  // What a number is multiplied by and added to, to be one of codes.
  std::pair<float, float> over(const Line& line) const {
    return {static_cast<float>(1 / line.scale), static_cast<float>((middle_ - line.shift) / line.scale)};
  }
  Lanes scaled(float inverse, float start, int64_t i) const { return load(numbers_, i) * inverse + start; }

  Sums sums_of(const Line& line) const {
    Lanes values{}, squares{}, products{}, errors{};
    const auto scale = static_cast<float>(line.scale), shift = static_cast<float>(line.shift - middle_);
    const auto [inverse, start] = over(line);
    const auto add = [&](int64_t i, auto&& of_those_there) {
      const Lanes x = load(numbers_, i);
      const Lanes value = of_those_there(codes_.values(codes_.codes(scaled(inverse, start, i))));
      const Lanes error = of_those_there(value * scale + shift - x);
      values += value;
      squares += value * value;
      products += value * x;
      errors += error * error;
    };
    int64_t i = 0;
    for (; i + lanes <= count_; i += lanes) add(i, [](const Lanes& x) { return x; });
    if (i < count_) add(i, [&](const Lanes& x) { return x * there_; });
    return {sum_of(values), sum_of(squares), sum_of(products), sum_of(errors)};
  }

  Line fit(const Line& line, const Shift& shift, const Sums& sums) const {
    const auto count = static_cast<double>(count_);
    if (shift.is_free) {
      const double spread = count * sums.squares - sums.values * sums.values;
      const double scale = spread > 0 ? (count * sums.products - sum_ * sums.values) / spread : line.scale;
      return {scale, (sum_ - scale * sums.values) / count + middle_};
    }
    // The products of value + scales, with the numbers and with itself.
    const double with_numbers = sums.products + middle_ * sums.values + shift.scales * (sum_ + count * middle_);
    const double with_itself = sums.squares + 2 * shift.scales * sums.values + count * shift.scales * shift.scales;
    const double scale = with_itself > 0 ? with_numbers / with_itself : line.scale;
    return {scale, shift.scales * scale};
  }

  const Codes& codes_;
  std::vector<float> numbers_;
  Lanes there_{};  // of the last vector, where it is not full: 1 and 0
  int64_t count_ = 0;
  double low_ = 0, high_ = 0, middle_ = 0, sum_ = 0;
  bool has_best_ = false;
  Line best_{};
  double best_error_ = 0;
};

enum class Offsets { none, whole, any };

template <typename Codes>
Line best_line(Group<Codes>& group, const Codes& codes, Offsets offsets) {
  const double least = group.least_scale();
  for (const double share : shares) {
    if (offsets == Offsets::any) {
      const double scale = std::max((group.high() / 2 - group.low() / 2) * share / FourBits::largest, least);
      group.try_line({scale, group.low() / 2 + group.high() / 2 + scale / 2}, {true, 0});  // codes reach from -8 to 7
    } else if (offsets == Offsets::whole) {
      const double low = std::min(group.low(), 0.), high = std::max(group.high(), 0.);
      const double scale = std::max((high / 2 - low / 2) * share / FourBits::largest, smallest);
      const double scales = 8 + std::round(low * share / scale);
      group.try_line({scale, scales * scale}, {false, scales});
    } else {
      // There is one negative integer more than positive ones, and the negative values of a table are others: a negative
      // scale may fit better.
      const double whole = std::max(std::abs(group.low()), std::abs(group.high())) / std::floor(codes.largest);
      const double scale = std::max(whole * share, smallest);
      group.try_line({scale, 0}, {false, 0});
      group.try_line({-scale, 0}, {false, 0});
    }
  }
  return group.best();
}

// Of 4 bits.
template <typename Codes>
WeightInCodes in_four_bits(const at::Tensor& weight, const Codes& codes, int64_t size, Offsets offsets) {
  const int64_t outputs = weight.size(0), inputs = weight.size(1), groups = at::divup(inputs, size);
  WeightInCodes result{at::empty({outputs, inputs}, at::kChar), at::empty({outputs, groups}, at::kFloat), {}, size};
  if (offsets != Offsets::none) result.offsets = at::empty({outputs, groups}, at::kFloat);
  const at::Tensor dense = weight.contiguous();
  const auto* from = dense.const_data_ptr<float>();
  auto* to = result.codes.mutable_data_ptr<int8_t>();
  auto* scales = result.scales.mutable_data_ptr<float>();
  auto* shifts = result.offsets.defined() ? result.offsets.mutable_data_ptr<float>() : nullptr;
  constexpr int64_t elements_worth_waking = 1 << 12;
  parallel_for(outputs, grain_of(outputs, outputs * inputs, elements_worth_waking), [&](int64_t first, int64_t last) {
    Group<Codes> group(codes);
    for (int64_t output = first; output < last; ++output) {
      for (int64_t i = 0; i < groups; ++i) {
        const int64_t place = output * inputs + i * size;
        group.read(from + place, std::min(size, inputs - i * size));
        const Line line = best_line(group, codes, offsets);
        group.write_codes(line, to + place);
        scales[output * groups + i] = static_cast<float>(line.scale);
        if (shifts) {
          const double offset = -line.shift / line.scale;
          shifts[output * groups + i] = static_cast<float>(offsets == Offsets::whole ? std::round(offset) : offset);
        }
      }
    }
  });
  return result;
}

// The largest of 8 bits for the largest number. [outputs, groups, size].
WeightInCodes in_bytes(const at::Tensor& weight, int64_t inputs, int64_t size, bool symmetric) {
  constexpr int64_t half = 128, steps = 2 * half - 1;
  const auto in_rows = [&](const at::Tensor& codes) {
    return codes.to(at::kChar).view({weight.size(0), -1}).narrow(1, 0, inputs).contiguous();
  };
  if (symmetric) {
    const at::Tensor scales = (weight.abs().amax(2) / (half - 1)).clamp_min(smallest);
    return {in_rows((weight / scales.unsqueeze(2)).round().clamp(-half, half - 1)), scales, {}, size};
  }
  const at::Tensor low = weight.amin(2).clamp_max(0), high = weight.amax(2).clamp_min(0);
  const at::Tensor scales = (high / steps - low / steps).clamp_min(smallest);
  const at::Tensor offsets = (-low / scales).round() - half;
  const at::Tensor codes = ((weight / scales.unsqueeze(2)).round() + offsets.unsqueeze(2)).clamp(-half, half - 1);
  return {in_rows(codes), scales, offsets, size};
}

WeightInCodes in_floats(const at::Tensor& weight, int64_t inputs, int64_t size, const LowBitFormat& format) {
  // bfloat16 reaches as far as float32 does.
  const bool has_scales = format.bits == 8;
  const at::Tensor scales = has_scales ? (weight.abs().amax(2) / format.largest).clamp_min(smallest)
                                       : at::ones({weight.size(0), weight.size(1)});
  const at::Tensor scaled = (weight / scales.unsqueeze(2)).clamp(-format.largest, format.largest);
  return {scaled.view({weight.size(0), -1}).narrow(1, 0, inputs).contiguous().to(format.dtype), scales, {}, size};
}

using MaybeTensor = std::optional<at::Tensor>;

std::tuple<at::Tensor, at::Tensor, MaybeTensor, MaybeTensor> round_weight_op(const at::Tensor& weight,
                                                                             const std::string& format_name,
                                                                             int64_t group_size, bool symmetric) {
  constexpr const char* name = "ipex::round_weight";
  const LowBitFormat* format = low_bit_format(format_name);
  TORCH_CHECK(format, name, ": expected one of ", low_bit_format_names(), ", got '", format_name, "'.");
  TORCH_CHECK(group_size >= 0 && group_size % 8 == 0, name,
              ": expected a group_size of a multiple of 8, or 0 for whole rows, got ", group_size, ".");
  const WeightInCodes rounded = round_weight(name, weight, *format, group_size, symmetric);
  const auto if_any = [](const at::Tensor& tensor) { return tensor.defined() ? MaybeTensor(tensor) : std::nullopt; };
  return {rounded.codes, rounded.scales, if_any(rounded.offsets), if_any(format->table())};
}

}  // namespace

WeightInCodes round_weight(const char* name, const at::Tensor& weight, const LowBitFormat& format, int64_t group_size,
                           bool symmetric) {
  const at::NoGradGuard no_gradients;
  TORCH_CHECK(weight.dim() == 2 && weight.numel() > 0 && weight.scalar_type() == at::kFloat && is_plain_cpu(weight) &&
                  has_all_its_memory(weight) && weight.isfinite().all().item<bool>(),
              name, ": expected a non-empty, finite 2-D CPU weight of float32 to quantise, got ", text_of(weight),
              ". Leave this layer in float32.");
  const int64_t inputs = weight.size(1);
  const bool has_groups = group_size > 0 && group_size < inputs && (format.is_integer() || format.bits < 16);
  const int64_t size = has_groups ? group_size : inputs;
  if (format.values) return in_four_bits(weight, ValuesOfTable(format.values), size, Offsets::none);
  if (format.codes == CodeFormat::int4) {
    // Tiles take codes less whole offsets as they are, where a group is so large that its sums are scaled (parts_of_a_number
    // in weight_only_linear.cpp).
    const bool scales_sums = !has_groups || (size % tile_depth == 0 && size > tile_depth);
    return in_four_bits(weight, FourBits(), size,
                        symmetric     ? Offsets::none
                        : scales_sums ? Offsets::whole
                                      : Offsets::any);
  }
  const int64_t groups = at::divup(inputs, size);
  const at::Tensor grouped = at::constant_pad_nd(weight, {0, groups * size - inputs}).view({-1, groups, size});
  return format.is_integer() ? in_bytes(grouped, inputs, size, symmetric) : in_floats(grouped, inputs, size, format);
}

LowBitSpec quantized(const char* name, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                     std::vector<std::string> post_ops, const LowBitFormat& format, int64_t group_size,
                     bool symmetric) {
  const WeightInCodes rounded = round_weight(name, weight, format, group_size, symmetric);
  return {name,
          format.bits == 4 ? in_halves(rounded.codes) : rounded.codes,
          rounded.scales,
          rounded.offsets,
          bias.value_or(at::Tensor()),
          /*order=*/{},
          std::move(post_ops),
          weight.size(1),
          rounded.group_size,
          /*follows_input=*/false,
          /*row_bits=*/24,
          format.table()};
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "round_weight(Tensor weight, str format, int group_size, bool symmetric) -> (Tensor codes, Tensor scales, "
         "Tensor? offsets, Tensor? values)",
         round_weight_op);
}

}  // namespace ipex::runtime
