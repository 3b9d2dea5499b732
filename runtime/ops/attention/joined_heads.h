// Keys and values of a text that are joined with those of new words while attention reads them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstring>

namespace ipex::runtime {

// Float32, [batch, heads, length, width], the last dimension dense. `joined` is contiguous, and written head by head.
struct JoinedRows {
  at::Tensor past, added, joined;

  void write(int64_t batch, int64_t head) const {
    const int64_t width = joined.size(3);
    float* to = joined.mutable_data_ptr<float>() + batch * joined.stride(0) + head * joined.stride(1);
    for (const at::Tensor* from : {&past, &added}) {
      const float* rows = from->const_data_ptr<float>() + batch * from->stride(0) + head * from->stride(1);
      const int64_t count = from->size(2);
      const bool is_one_run = from->stride(2) == width;
      for (int64_t i = 0; i < (is_one_run ? 1 : count); ++i) {
        std::memcpy(to + i * width, rows + i * from->stride(2), sizeof(float) * width * (is_one_run ? count : 1));
      }
      to += count * width;
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
