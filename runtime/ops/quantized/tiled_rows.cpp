#include "ops/quantized/tiled_rows.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/weight_memory.h"
#include "ops/product/share_product.h"

namespace ipex::runtime {
namespace {

// Post-ops that need no floats beside: numbers that are added, then bounds.
struct Ending {
  std::optional<Affine> added;
  std::optional<Step> bounds;
};

std::optional<Ending> ending_of(const PostOps& post_ops, const OptionalAffines& operands) {
  Ending ending;
  for (const PostOp& op : post_ops) {
    if (op.steps.size() != 1 || ending.bounds) return std::nullopt;
    const Step& step = op.steps.front();
    const bool is_relu = step.algorithm == dnnl::algorithm::eltwise_relu && step.alpha == 0;
    if (is_relu || step.algorithm == dnnl::algorithm::eltwise_clip_v2) {
      ending.bounds = step;
    } else if (step.algorithm == dnnl::algorithm::binary_add && !ending.added && operands.front()) {
      ending.added = operands.front();
    } else {
      return std::nullopt;
    }
  }
  return ending;
}

PostOps without_last(const PostOps& post_ops, bool is_without) {
  return {post_ops.begin(), post_ops.end() - (is_without ? 1 : 0)};
}

at::Tensor padded(const at::Tensor& of_columns, int64_t columns) {
  at::Tensor result = zero_weight({columns}, of_columns.scalar_type());
  result.narrow(0, 0, of_columns.size(0)).copy_(of_columns);
  return result;
}

}  // namespace

bool TiledRows::take(int64_t inputs, const std::optional<Affine>& result, const PostOps& post_ops,
                     const OptionalAffines& operands) {
  if (!kernels().optional.byte_tiles || inputs % bytes_of_a_word != 0 || inputs > most_depth_of_bytes) return false;
  if (result && ending_of(post_ops, operands)) return true;
  const auto applies = [](const PostOp& op) { return is_exact(op) && KernelSteps::applies(op); };
  const PostOps steps = without_last(post_ops, last_slow_activation(post_ops, result.has_value()).has_value());
  return std::all_of(steps.begin(), steps.end(), applies) &&
         std::none_of(operands.begin(), operands.end(), [](const auto& affine) { return affine.has_value(); });
}

TiledRows::TiledRows(const Layer& layer, const StoredForms& stored)
    : weight_(layer.codes, layer.scales, stored, /*order=*/{}, layer.layout),
      result_(layer.result),
      activation_(last_slow_activation(layer.post_ops, result_.has_value())),
      steps_(without_last(layer.post_ops, activation_.has_value())) {
  const int64_t columns = weight_.panels() * kernels().bytes_product.panel_columns;
  offsets_ = weight_.sums() * layer.input.zero_point;
  at::Tensor scales = layer.scales, shifts = layer.bias.defined() ? layer.bias : at::zeros_like(scales);
  const auto ending = result_ ? ending_of(layer.post_ops, layer.operands) : std::nullopt;
  is_rounded_at_once_ = ending.has_value();
  if (ending) {
    const double inverse = 1 / result_->scale;
    const auto zero = static_cast<double>(result_->zero_point);
    const auto number = [&](double x) { return static_cast<float>(std::clamp(x * inverse + zero, 0.0, 255.0)); };
    double shift = zero;
    if (const auto& added = ending->added) {
      factor_ = static_cast<float>(added->scale * inverse);
      shift -= static_cast<double>(added->zero_point) * added->scale * inverse;
    }
    if (const auto& bounds = ending->bounds) {
      const bool is_clip = bounds->algorithm == dnnl::algorithm::eltwise_clip_v2;
      least_ = number(is_clip ? bounds->alpha : 0);
      if (is_clip) most_ = number(bounds->beta);
    }
    scales = (scales.to(at::kDouble) * inverse).to(at::kFloat);
    shifts = (shifts.to(at::kDouble) * inverse + shift).to(at::kFloat);
  }
  scales_ = padded(scales, columns);
  shifts_ = padded(shifts, columns);
}

void TiledRows::multiply(const at::Tensor& source, const FusedPostOps& fused, const at::Tensor& result) const {
  const int64_t inputs = weight_.inputs();
  multiply({source.const_data_ptr<uint8_t>(), inputs, 0, source.numel() / inputs, nullptr}, fused, result);
}

void TiledRows::multiply(const Rows& rows, const FusedPostOps& fused, const at::Tensor& result) const {
  KernelSteps::Room room;
  ByteTilesProduct product = weight_.tile_product(rows.first, rows.stride);
  product.runs = rows.runs;
  product.offsets = offsets_.const_data_ptr<int32_t>();
  product.scales = scales_.const_data_ptr<float>();
  product.shifts = shifts_.const_data_ptr<float>();
  product.steps = {nullptr, nullptr, 0, weight_.columns()};
  product.least = least_;
  product.most = most_;
  if (is_rounded_at_once_) {
    if (!fused.operands.empty()) product.other = fused.operands.front().const_data_ptr<uint8_t>();
    product.factor = factor_;
  } else {
    FusedPostOps before = fused;
    if (activation_) {
      --before.count;
      product.activation = &*activation_;
    }
    product.steps = steps_.of_call(before, {}, weight_.columns(), room);
  }
  if (result_) {
    const AffineRounding rounding(*result_);
    product.rounding = {rounding.inverse_scale, rounding.zero_point};
    product.numbers = result.mutable_data_ptr<uint8_t>();
  } else {
    product.floats = result.mutable_data_ptr<float>();
  }
  share_rows_and_panels(
      {rows.end - rows.begin, weight_.inputs(), weight_.columns(), kernels().bytes_product.panel_columns},
      [&](int64_t, int64_t) {
        return [&](int64_t first, int64_t last, int64_t first_panel, int64_t last_panel) {
          kernels().optional.byte_tiles->multiply(product, rows.begin + first, rows.begin + last, first_panel,
                                                  last_panel);
        };
      });
}

}  // namespace ipex::runtime
