// Keys and values of a text that are joined with those of new words while attention reads them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>

namespace ipex::runtime {

// Of one dtype, [batch, heads, length, width], the last dimension dense. `joined` is contiguous, and written head by head.
struct JoinedRows {
  at::Tensor past, added, joined;

  void write(int64_t batch, int64_t head) const {
    const auto item = static_cast<int64_t>(joined.itemsize()), row = joined.size(3) * item;
    auto* to =
        static_cast<char*>(joined.mutable_data_ptr()) + (batch * joined.stride(0) + head * joined.stride(1)) * item;
    for (const at::Tensor* from : {&past, &added}) {
      const auto* rows =
          static_cast<const char*>(from->const_data_ptr()) + (batch * from->stride(0) + head * from->stride(1)) * item;
      const int64_t count = from->size(2), stride = from->stride(2) * item;
      const bool is_one_run = stride == row;
      for (int64_t i = 0; i < (is_one_run ? 1 : count); ++i) {
        std::memcpy(to + i * row, rows + i * stride, row * (is_one_run ? count : 1));
      }
      to += count * row;
    }
  }
};

struct JoinedHeads {
  JoinedRows keys, values;

  void write(int64_t batch, int64_t head) const {
    keys.write(batch, head);
    values.write(batch, head);
  }

  // The same of all heads, a few for each thread.
  void write_all() const;
};

}  // namespace ipex::runtime
