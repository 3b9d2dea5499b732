// The sizes and strides that eager gives to the result of an elementwise op, from those of what it reads.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>

namespace ipex::runtime {

struct Layout {
  static constexpr int64_t most_dimensions = 8;

  int64_t dimensions = 0;
  std::array<int64_t, most_dimensions> sizes, strides;

  // Of a tensor with at most so many dimensions.
  static Layout of(const at::Tensor& tensor);

  at::IntArrayRef all_sizes() const { return {sizes.data(), static_cast<size_t>(dimensions)}; }
  at::IntArrayRef all_strides() const { return {strides.data(), static_cast<size_t>(dimensions)}; }
  int64_t elements() const;
  // With exactly the strides of a new contiguous tensor, dimensions of size 1 included.
  bool is_as_new() const;
  void lay_out_as_new();
  // As new, but for one dimension, which lies outermost: what is left of the others for one index of it is in one piece.
  void lay_out_with_outermost(int64_t dimension);
  // Without gaps, and no element twice.
  bool is_dense() const;
};

// Of an op with up to three operands; a number is one without dimensions. False where the shapes don't go together.
bool result_layout(at::ArrayRef<const Layout*> operands, Layout& result);

}  // namespace ipex::runtime
