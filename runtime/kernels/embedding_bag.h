// Rows of a table, summed or compared in bags, on plain pointers.
//
// A row is floats or, of a table in bytes, codes from 0 to 255 with a range of their own. The ranges lie apart: they are few
// enough to stay in cache, and rows then begin where lines do.
#pragma once

#include <cstdint>

namespace ipex::runtime {

enum class Reduction : int64_t { sum, mean, max };

// number = code * scale + low
struct RowRange {
  float scale, low;
};

template <typename Index>
struct Bags {
  const void* table;
  const RowRange* ranges;  // null for floats
  int64_t rows, width;
  const Index* indices;
  int64_t index_count;
  const Index* offsets;  // where each bag begins; the last one may end there too
  int64_t offset_count;
  const float* scales;  // one per index, or null
  Reduction reduction;
  int64_t padding;  // the index that does not count, or -1
  float* result;
};

// Every index must be a row, and every bag a range of indices.
struct EmbeddingBagKernels {
  void (*reduce_int32)(const Bags<int32_t>&, int64_t first_bag, int64_t last_bag);
  void (*reduce_int64)(const Bags<int64_t>&, int64_t first_bag, int64_t last_bag);
  // The floats of a row of bytes.
  void (*expand_row)(const uint8_t* row, RowRange range, int64_t width, float* to);
};

}  // namespace ipex::runtime
