// Where keys, values or their scales lie in memory that is kept, [batch, heads, room, numbers of a word]: of a head, all keys lie
// before all values, so that what is read together lies together.
#pragma once

#include <ATen/core/Tensor.h>

#include "packed/head_rows.h"

namespace ipex::runtime {

// A part of the memory of each head: some numbers of every word, one word after the other.
class KeptPart {
 public:
  KeptPart(const at::Tensor& memory, at::ScalarType dtype, int64_t begin, int64_t numbers)
      : memory_(memory), dtype_(dtype), begin_(begin), numbers_(numbers) {}

  // Of words in [first, first + count).
  HeadRows rows(int64_t first, int64_t count) const {
    char* const place = static_cast<char*>(memory_.mutable_data_ptr()) + begin_ + first * numbers_ * item_size();
    return {place, dtype_, {memory_.size(0), memory_.size(1), count, numbers_}, strides()};
  }

  // The same, as a view.
  at::Tensor view(int64_t first, int64_t count) const {
    const at::Tensor all = dtype_ == memory_.scalar_type() ? memory_ : memory_.flatten().view(dtype_);
    const int64_t begin = all.storage_offset() + begin_ / item_size() + first * numbers_;
    return all.as_strided({memory_.size(0), memory_.size(1), count, numbers_}, strides(), begin);
  }

  // What is behind it.
  int64_t end() const { return begin_ + memory_.size(2) * numbers_ * item_size(); }

 private:
  int64_t item_size() const { return static_cast<int64_t>(c10::elementSize(dtype_)); }
  HeadRows::Four strides() const {
    const int64_t head = memory_.size(2) * memory_.size(3) * static_cast<int64_t>(memory_.itemsize()) / item_size();
    return {memory_.size(1) * head, head, numbers_, 1};
  }

  const at::Tensor& memory_;
  const at::ScalarType dtype_;
  const int64_t begin_, numbers_;  // bytes of a head before it; of a word
};

}  // namespace ipex::runtime
