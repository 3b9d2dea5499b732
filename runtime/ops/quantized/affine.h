// How 8-bit numbers, 0 to 255, stand for floats: value = (number - zero_point) * scale.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace ipex::runtime {

struct Affine {
  double scale;
  int64_t zero_point;
};

// Throws, naming `where`, for a scale that is not positive and finite and a zero point outside of 0 to 255.
const Affine& checked(const char* where, const Affine& affine);

// As ops and files have them: scale and zero point of each, one after the other, a scale of 0 for what stays float.
using OptionalAffines = std::vector<std::optional<Affine>>;
OptionalAffines affines_of(const char* where, const std::vector<double>& numbers);
std::vector<double> numbers_of(const OptionalAffines& affines);
// Of one tensor; none where there are no numbers.
std::optional<Affine> affine_of(const char* where, const std::vector<double>& numbers);

// What a kernel rounds with: x * inverse_scale + zero_point.
struct AffineRounding {
  explicit AffineRounding(const Affine& affine)
      : inverse_scale(static_cast<float>(1 / affine.scale)), zero_point(static_cast<float>(affine.zero_point)) {}

  float inverse_scale, zero_point;
};

// float32 to numbers, in the same layout. `factors` multiply the last dimension first; undefined for none.
at::Tensor quantize(const at::Tensor& x, const Affine& affine, const at::Tensor& factors = {});
at::Tensor dequantize(const at::Tensor& numbers, const Affine& affine);
// Numbers that stand for floats by `from` as numbers by `to`.
at::Tensor requantize(const at::Tensor& numbers, const Affine& from, const Affine& to);

}  // namespace ipex::runtime
