#include "ops/product/packed_bytes.h"

#include <ATen/ATen.h>

#include "aot/checksum.h"
#include "memory/weight_memory.h"
#include "packed/call_conditions.h"
#include "threads/parallel.h"

namespace ipex::runtime {

PackedBytes::PackedBytes(const at::Tensor& codes, const at::Tensor& scales, const StoredForms& stored,
                         std::vector<int64_t> order, std::string layout)
    : order_(std::move(order)),
      layout_(std::move(layout)),
      outputs_(codes.size(0)),
      inputs_(codes.size(1)),
      columns_(order_.empty() ? outputs_ : static_cast<int64_t>(order_.size())),
      panel_columns_(kernels().bytes_product.panel_columns),
      depth_(at::divup(inputs_, bytes_of_a_word)),
      panels_(at::divup(columns_, panel_columns_)),
      bytes_(stored.get(kind("int8"), {at::kChar, {bytes_of_a_word * panels_ * depth_ * panel_columns_}},
                        [&] { return in_panels(codes); })),
      sums_(stored.get(kind("int8 sums"), {at::kInt, {panels_ * panel_columns_}}, [&] { return sums_of(codes); })),
      scales_(scales_of(scales)) {}

at::Tensor PackedBytes::codes() const {
  const OutsideOfPythonModes outside;
  at::Tensor codes = at::empty({outputs_, inputs_}, at::kChar);
  const auto* bytes = bytes_.const_data_ptr<int8_t>();
  auto* to = codes.mutable_data_ptr<int8_t>();
  for (int64_t column = 0; column < columns_; ++column) {
    const int64_t output = output_of(column);
    for (int64_t k = 0; output >= 0 && k < inputs_; ++k) to[output * inputs_ + k] = bytes[place(column, k)];
  }
  return codes;
}

at::Tensor PackedBytes::scales() const {
  const OutsideOfPythonModes outside;
  at::Tensor scales = at::empty({outputs_, 1}, at::kFloat);
  for (int64_t column = 0; column < columns_; ++column) {
    const int64_t output = output_of(column);
    if (output >= 0) scales.mutable_data_ptr<float>()[output] = scales_.const_data_ptr<float>()[column];
  }
  return scales;
}

BytesProduct PackedBytes::product(const RoundedRows& rows, int64_t first_row, const ElementwiseSteps& steps,
                                  float* result, int64_t result_stride) const {
  return {.rows = rows.bytes_,
          .row_stride = rows.stride_,
          .row_scales = rows.scales_,
          .first_row = first_row,
          .words = static_cast<const uint32_t*>(bytes_.const_data_ptr()),
          .depth = depth_,
          .panel_size = depth_ * panel_columns_,
          .column_scales = scales_.const_data_ptr<float>(),
          .column_sums = sums_.const_data_ptr<int32_t>(),
          .steps = steps,
          .result = result,
          .result_stride = result_stride};
}

ByteTilesProduct PackedBytes::tile_product(const uint8_t* rows, int64_t row_stride) const {
  return {.rows = rows,
          .row_stride = row_stride,
          .words = static_cast<const uint32_t*>(bytes_.const_data_ptr()),
          .depth = depth_,
          .panel_size = depth_ * panel_columns_};
}

std::string PackedBytes::kind(const char* what) const {
  std::string text = c10::str(what, layout_, ", ", panel_columns_, " columns");
  if (!order_.empty()) text += c10::str(", order ", checksum(order_.data(), order_.size() * sizeof(order_[0])));
  return text;
}

at::Tensor PackedBytes::in_panels(const at::Tensor& codes) const {
  at::Tensor result = zero_weight({bytes_of_a_word * panels_ * depth_ * panel_columns_}, at::kChar);
  const auto* from = codes.const_data_ptr<int8_t>();
  auto* bytes = result.mutable_data_ptr<int8_t>();
  parallel_for(columns_, panel_columns_, [&](int64_t first, int64_t last) {
    for (int64_t column = first; column < last; ++column) {
      const int64_t output = output_of(column);
      for (int64_t k = 0; output >= 0 && k < inputs_; ++k) bytes[place(column, k)] = from[output * inputs_ + k];
    }
  });
  return result;
}

at::Tensor PackedBytes::sums_of(const at::Tensor& codes) const {
  at::Tensor result = zero_weight({panels_ * panel_columns_}, at::kInt);
  const auto* from = codes.const_data_ptr<int8_t>();
  auto* sums = result.mutable_data_ptr<int32_t>();
  for (int64_t column = 0; column < columns_; ++column) {
    const int64_t output = output_of(column);
    for (int64_t k = 0; output >= 0 && k < inputs_; ++k) sums[column] += from[output * inputs_ + k];
  }
  return result;
}

at::Tensor PackedBytes::scales_of(const at::Tensor& scales) const {
  at::Tensor result = zero_weight({panels_ * panel_columns_}, at::kFloat);
  for (int64_t column = 0; column < columns_; ++column) {
    const int64_t output = output_of(column);
    if (output >= 0) result.mutable_data_ptr<float>()[column] = scales.const_data_ptr<float>()[output];
  }
  return result;
}

int64_t PackedBytes::place(int64_t column, int64_t k) const {
  const int64_t panel = column / panel_columns_, in_panel = column % panel_columns_;
  return ((panel * depth_ + k / bytes_of_a_word) * panel_columns_ + in_panel) * bytes_of_a_word + k % bytes_of_a_word;
}

}  // namespace ipex::runtime
