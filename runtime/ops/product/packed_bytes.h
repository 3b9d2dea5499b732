// A weight of int8 codes, with a scale for each output, in the layout of kernels/bytes_product.h, and the rows that it is
// multiplied by.
#pragma once

#include <string>
#include <vector>

#include "aot/stored_forms.h"
#include "kernels/kernels.h"
#include "ops/product/low_bit_linear.h"

namespace ipex::runtime {

// Rows of floats, each rounded to uint8 with a scale and a zero of its own.
class RoundedRows {
 public:
  // The bytes of memory for `count` rows.
  static int64_t size_of(int64_t count, int64_t width) {
    return count * (stride_of_bytes(width) + static_cast<int64_t>(sizeof(RowScale)));
  }
  RoundedRows(uint8_t* memory, int64_t count, int64_t width)
      : width_(width),
        stride_(stride_of_bytes(width)),
        bytes_(memory),
        scales_(reinterpret_cast<RowScale*>(memory + count * stride_)) {}

  void round(int64_t row, const float* from) const {
    scales_[row] = kernels().bytes_product.quantize(from, width_, bytes_ + row * stride_);
  }

 private:
  friend class PackedBytes;

  int64_t width_, stride_;
  uint8_t* bytes_;
  RowScale* scales_;
};

class PackedBytes final : public PackedCodes {
 public:
  // `codes` is int8 [outputs, inputs]. Column i is output order[i], or zero where that is -1; without an order, output i.
  // `layout` says how they follow from the weight, where they are not it.
  PackedBytes(const at::Tensor& codes, const at::Tensor& scales, const StoredForms& stored,
              std::vector<int64_t> order = {}, std::string layout = {});

  at::Tensor codes() const override;
  at::Tensor scales() const override;
  at::Tensor offsets() const override { return {}; }

  // For the kernel. `first_row` is where the first of the rows belongs in the result.
  BytesProduct product(const RoundedRows& rows, int64_t first_row, const ElementwiseSteps& steps, float* result,
                       int64_t result_stride) const;

  // The weight and the rows: the rest is the caller's.
  ByteTilesProduct tile_product(const uint8_t* rows, int64_t row_stride) const;

  // Of the codes of each column, and of what pads the last panel: int32.
  const at::Tensor& sums() const { return sums_; }
  int64_t inputs() const { return inputs_; }
  int64_t columns() const { return columns_; }
  int64_t panels() const { return panels_; }

 private:
  // Of column i, or -1.
  int64_t output_of(int64_t column) const { return order_.empty() ? column : order_[column]; }
  std::string kind(const char* what) const;
  at::Tensor in_panels(const at::Tensor& codes) const;
  at::Tensor sums_of(const at::Tensor& codes) const;
  at::Tensor scales_of(const at::Tensor& scales) const;
  int64_t place(int64_t column, int64_t k) const;

  const std::vector<int64_t> order_;
  const std::string layout_;
  const int64_t outputs_, inputs_, columns_, panel_columns_, depth_, panels_;
  const at::Tensor bytes_, sums_, scales_;
};

}  // namespace ipex::runtime
