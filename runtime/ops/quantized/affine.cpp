// Where a float32 model begins to compute in 8 bits.
//
//   ipex::quantize(x, scale, zero_point, factors) -> Tensor     float32 to uint8: x * factors / scale + zero_point, rounded
//   ipex::dequantize(numbers, scale, zero_point) -> Tensor      uint8 to float32: (number - zero_point) * scale
//   ipex::requantize(numbers, scale, zero_point, to_scale, to_zero_point) -> Tensor     one after the other, in one pass
//
// `factors` has one element for each of the last dimension: what SmoothQuant takes from activations and gives to weights.
// Numbers are held between 0 and 255; NaN becomes 0. Strides stay as they are.
#include "ops/quantized/affine.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <cmath>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/damaged.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr int64_t elements_worth_a_thread = 32768;

// A tensor without gaps, with a result of the same strides. One with gaps, as some channels of an image, is copied into
// the memory format that it has: convolutions go by that.
std::pair<at::Tensor, at::Tensor> dense_pair(const at::Tensor& x, at::ScalarType result) {
  for (const at::MemoryFormat format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
    const bool may_have_it = format == at::MemoryFormat::Contiguous || x.dim() == 4;
    if (may_have_it && x.is_contiguous(format)) {
      const at::Tensor made = empty_result(x.sizes(), at::TensorOptions(result).memory_format(format));
      return {x, made.as_strided(x.sizes(), x.strides())};  // dimensions of one element have any stride
    }
  }
  const at::Tensor dense = x.is_non_overlapping_and_dense() ? x : x.contiguous(x.suggest_memory_format());
  return {dense, at::empty_strided(dense.sizes(), dense.strides(), at::TensorOptions(result))};
}

// How far apart the pixels of a slice of channels lie, where the whole image is channels-last. 0 for other tensors.
int64_t pitch_of_slice(const at::Tensor& x) {
  if (x.dim() != 4 || x.numel() == 0 || x.size(1) < 2 || x.size(3) < 2 || x.stride(1) != 1) return 0;
  const int64_t pitch = x.stride(3), row = x.size(3) * pitch, image = x.size(2) * row;
  const bool is_even = (x.size(2) == 1 || x.stride(2) == row) && (x.size(0) == 1 || x.stride(0) == image);
  return is_even && pitch > x.size(1) ? pitch : 0;
}

// Without a copy of what is sliced: `convert(from, count, to)` for the channels of each pixel.
template <typename T, typename Result>
at::Tensor convert_slice(const at::Tensor& x, int64_t pitch, const auto& convert) {
  const auto dtype = c10::CppTypeToScalarType<Result>::value;
  const at::Tensor result =
      empty_result(x.sizes(), at::TensorOptions(dtype).memory_format(at::MemoryFormat::ChannelsLast));
  const int64_t channels = x.size(1), pixels = x.numel() / channels;
  const T* from = x.const_data_ptr<T>();
  auto* to = result.mutable_data_ptr<Result>();
  parallel_for(pixels, grain_of(pixels, x.numel(), elements_worth_a_thread), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) convert(from + i * pitch, channels, to + i * channels);
  });
  return result;
}

}  // namespace

const Affine& checked(const char* where, const Affine& affine) {
  TORCH_CHECK(std::isfinite(affine.scale) && affine.scale > 0 && std::isfinite(1 / static_cast<float>(affine.scale)),
              where, ": expected a positive scale, got ", affine.scale,
              ". Calibrate the model with data that it meets.");
  TORCH_CHECK(affine.zero_point >= 0 && affine.zero_point <= 255, where, ": expected a zero point of 0 to 255, got ",
              affine.zero_point, ". Take one that 8 bits hold.");
  return affine;
}

OptionalAffines affines_of(const char* where, const std::vector<double>& numbers) {
  TORCH_CHECK(numbers.size() % 2 == 0, where, ": expected a zero point beside each scale, got ", numbers.size(),
              " numbers", damaged);
  OptionalAffines affines;
  for (size_t i = 0; i < numbers.size(); i += 2) {
    if (numbers[i] == 0) {
      affines.emplace_back();
      continue;
    }
    const bool is_in_range = numbers[i + 1] >= 0 && numbers[i + 1] <= 255;  // and no NaN
    affines.emplace_back(checked(where, {numbers[i], is_in_range ? static_cast<int64_t>(numbers[i + 1]) : -1}));
  }
  return affines;
}

std::optional<Affine> affine_of(const char* where, const std::vector<double>& numbers) {
  if (numbers.empty()) return std::nullopt;
  const OptionalAffines affines = affines_of(where, numbers);
  TORCH_CHECK(affines.size() == 1, where, ": expected a scale for 1 tensor, got ", affines.size(), damaged);
  return affines[0];
}

std::vector<double> numbers_of(const OptionalAffines& affines) {
  std::vector<double> numbers;
  for (const auto& affine : affines) {
    numbers.push_back(affine ? affine->scale : 0);
    numbers.push_back(affine ? static_cast<double>(affine->zero_point) : 0);
  }
  return numbers;
}

at::Tensor quantize(const at::Tensor& x, const Affine& affine, const at::Tensor& factors) {
  constexpr const char* where = "ipex::quantize";
  checked(where, affine);
  TORCH_CHECK(x.scalar_type() == at::kFloat && is_plain_cpu(x), where, ": expected a float32 CPU tensor, got ",
              x.toString(), ". Give the model float32.");
  TORCH_CHECK(!factors.defined() || (factors.dim() == 1 && x.dim() > 0 && factors.size(0) == x.size(-1) &&
                                     factors.scalar_type() == at::kFloat && is_plain_cpu(factors)),
              where, ": expected a float32 factor for each element of the last dimension of ", x.sizes(), ", got ",
              factors.defined() ? c10::str(factors.toString(), " ", factors.sizes()) : "none", ".");
  if (const int64_t pitch = factors.defined() ? 0 : pitch_of_slice(x)) {
    const AffineRounding by(affine);
    return convert_slice<float, uint8_t>(x, pitch, [&](const float* from, int64_t count, uint8_t* to) {
      kernels().quantize.quantize(from, 1, count, nullptr, by.inverse_scale, by.zero_point, to);
    });
  }
  const auto [source, result] = factors.defined() ? std::pair(contiguous_result(x), empty_result(x.sizes(), at::kByte))
                                                  : dense_pair(x, at::kByte);
  const at::Tensor dense_factors = factors.defined() ? factors.contiguous() : factors;
  const int64_t columns = factors.defined() ? x.size(-1) : std::min<int64_t>(x.numel(), 4096);
  if (x.numel() == 0) return result;
  const float* from = source.const_data_ptr<float>();
  const float* by = factors.defined() ? dense_factors.const_data_ptr<float>() : nullptr;
  auto* to = result.mutable_data_ptr<uint8_t>();
  const AffineRounding by_scale(affine);
  const float inverse = by_scale.inverse_scale, zero = by_scale.zero_point;
  // Without factors the rows are pieces of any length, and the last one is shorter.
  const int64_t rows = x.numel() / columns, rest = x.numel() - rows * columns;
  parallel_for(rows, grain_of(rows, rows * columns, elements_worth_a_thread), [&](int64_t begin, int64_t end) {
    kernels().quantize.quantize(from + begin * columns, end - begin, columns, by, inverse, zero, to + begin * columns);
  });
  if (rest > 0) {
    kernels().quantize.quantize(from + rows * columns, 1, rest, nullptr, inverse, zero, to + rows * columns);
  }
  return result;
}

at::Tensor dequantize(const at::Tensor& numbers, const Affine& affine) {
  constexpr const char* where = "ipex::dequantize";
  checked(where, affine);
  TORCH_CHECK(numbers.scalar_type() == at::kByte && is_plain_cpu(numbers), where, ": expected a uint8 CPU tensor, got ",
              numbers.toString(), ".");
  const auto scale = static_cast<float>(affine.scale), zero = static_cast<float>(affine.zero_point);
  if (const int64_t pitch = pitch_of_slice(numbers)) {
    return convert_slice<uint8_t, float>(numbers, pitch, [&](const uint8_t* from, int64_t count, float* to) {
      kernels().quantize.dequantize(from, count, scale, zero, to);
    });
  }
  const auto [source, result] = dense_pair(numbers, at::kFloat);
  const auto* from = source.const_data_ptr<uint8_t>();
  auto* to = result.mutable_data_ptr<float>();
  parallel_for(numbers.numel(), elements_worth_a_thread, [&](int64_t begin, int64_t end) {
    kernels().quantize.dequantize(from + begin, end - begin, scale, zero, to + begin);
  });
  return result;
}

at::Tensor requantize(const at::Tensor& numbers, const Affine& from, const Affine& to) {
  constexpr const char* where = "ipex::requantize";
  checked(where, from);
  checked(where, to);
  TORCH_CHECK(numbers.scalar_type() == at::kByte && is_plain_cpu(numbers), where, ": expected a uint8 CPU tensor, got ",
              numbers.toString(), ".");
  const AffineRounding by(to);
  const auto round = [&](const uint8_t* source, int64_t count, uint8_t* result) {
    kernels().quantize.requantize(source, count, static_cast<float>(from.scale), static_cast<float>(from.zero_point),
                                  by.inverse_scale, by.zero_point, result);
  };
  if (const int64_t pitch = pitch_of_slice(numbers)) return convert_slice<uint8_t, uint8_t>(numbers, pitch, round);
  const auto [source, result] = dense_pair(numbers, at::kByte);
  const auto* first = source.const_data_ptr<uint8_t>();
  auto* to_first = result.mutable_data_ptr<uint8_t>();
  parallel_for(numbers.numel(), elements_worth_a_thread,
               [&](int64_t begin, int64_t end) { round(first + begin, end - begin, to_first + begin); });
  return result;
}

namespace {

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m, "requantize(Tensor numbers, float scale, int zero_point, float to_scale, int to_zero_point) -> Tensor",
         [](const at::Tensor& numbers, double scale, int64_t zero_point, double to_scale, int64_t to_zero_point) {
           return requantize(numbers, {scale, zero_point}, {to_scale, to_zero_point});
         });
  define(m, "quantize(Tensor x, float scale, int zero_point, Tensor? factors=None) -> Tensor",
         [](const at::Tensor& x, double scale, int64_t zero_point, const std::optional<at::Tensor>& factors) {
           return quantize(x, {scale, zero_point}, factors.value_or(at::Tensor()));
         });
  define(m, "dequantize(Tensor numbers, float scale, int zero_point) -> Tensor",
         [](const at::Tensor& numbers, double scale, int64_t zero_point) {
           return dequantize(numbers, {scale, zero_point});
         });
}

}  // namespace
}  // namespace ipex::runtime
