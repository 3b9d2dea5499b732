// Where the rows of heads lie, [batch, heads, length, width]: of a tensor, or of a part of one, without the views that aten would
// make. Owns nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>

namespace ipex::runtime {

struct HeadRows {
  using Four = std::array<int64_t, 4>;

  char* first;  // of a tensor that is only read, only to be read
  at::ScalarType dtype;
  Four sizes, strides;  // in elements

  static HeadRows to_read(const at::Tensor& heads) { return {heads, const_cast<void*>(heads.const_data_ptr())}; }
  static HeadRows to_write(const at::Tensor& heads) { return {heads, heads.mutable_data_ptr()}; }
  HeadRows(char* first, at::ScalarType dtype, const Four& sizes, const Four& strides)
      : first(first), dtype(dtype), sizes(sizes), strides(strides) {}

  int64_t size(size_t i) const { return sizes[i]; }
  int64_t stride(size_t i) const { return strides[i]; }
  int64_t item_size() const { return static_cast<int64_t>(c10::elementSize(dtype)); }

  char* row(int64_t batch, int64_t head, int64_t i = 0) const {
    return first + (batch * strides[0] + head * strides[1] + i * strides[2]) * item_size();
  }
  // Of a row of all.
  char* row(int64_t number) const {
    const int64_t head = number / sizes[2];
    return row(head / sizes[1], head % sizes[1], number % sizes[2]);
  }

 private:
  HeadRows(const at::Tensor& heads, void* data)
      : first(static_cast<char*>(data)), dtype(heads.scalar_type()), sizes(), strides() {
    std::copy_n(heads.sizes().begin(), sizes.size(), sizes.begin());
    std::copy_n(heads.strides().begin(), strides.size(), strides.begin());
  }
};

}  // namespace ipex::runtime
