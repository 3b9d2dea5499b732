// Rows of float32, bfloat16 or float16, for kernels that take floats. A row of 16 bits is widened into room that the caller
// has, and rounded once when it is written.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "kernels/halves.h"

namespace ipex::runtime {

constexpr bool is_half(at::ScalarType dtype) { return dtype == at::kBFloat16 || dtype == at::kHalf; }

// Of a plain CPU tensor of float32, bfloat16 or float16.
bool has_float_rows(const at::Tensor& tensor);

// Null for float32, which needs no conversion.
const HalvesKernels* halves_of(at::ScalarType dtype);

// How far apart rows of the last `dimensions` dimensions lie, in elements. None where they are no runs of memory, or not equally
// far apart.
std::optional<int64_t> row_stride(const at::Tensor& tensor, size_t dimensions);

// A contiguous tensor, in float32.
at::Tensor in_floats(const at::Tensor& tensor);

// Of a contiguous tensor, or one whose rows are `stride` elements apart.
class RowsToRead {
 public:
  RowsToRead(const at::Tensor& tensor, int64_t width) : RowsToRead(tensor, width, width) {}
  RowsToRead(const at::Tensor& tensor, int64_t width, int64_t stride)
      : halves_(halves_of(tensor.scalar_type())),
        from_(static_cast<const char*>(tensor.const_data_ptr())),
        width_(width),
        row_bytes_(stride * static_cast<int64_t>(tensor.itemsize())) {}

  // Row `i`: in `room`, or where it lies as floats already.
  const float* row(int64_t i, float* room) const {
    if (!halves_) return reinterpret_cast<const float*>(from_ + i * row_bytes_);
    halves_->widen(from_ + i * row_bytes_, width_, room);
    return room;
  }

  // The sum of row `i` and row `j` of another tensor of this dtype, in `room`. Of 16 bits.
  void add(int64_t i, const RowsToRead& other, int64_t j, float* room) const {
    halves_->add(from_ + i * row_bytes_, other.from_ + j * row_bytes_, width_, room);
  }

 private:
  const HalvesKernels* halves_;
  const char* from_;
  int64_t width_, row_bytes_;
};

// Of a contiguous tensor.
class RowsToWrite {
 public:
  RowsToWrite(const at::Tensor& tensor, int64_t width)
      : halves_(halves_of(tensor.scalar_type())),
        to_(static_cast<char*>(tensor.mutable_data_ptr())),
        width_(width),
        row_bytes_(width * static_cast<int64_t>(tensor.itemsize())) {}

  // Where the floats of row `i` have to be before `write(i)`: in `room`, or in the tensor itself.
  float* place(int64_t i, float* room) const { return halves_ ? room : reinterpret_cast<float*>(to_ + i * row_bytes_); }

  void write(int64_t i, const float* place) const {
    if (halves_) halves_->narrow(place, width_, to_ + i * row_bytes_);
  }

 private:
  const HalvesKernels* halves_;
  char* to_;
  int64_t width_, row_bytes_;
};

}  // namespace ipex::runtime
