// A layer of 8-bit numbers by the tiles of AMX (kernels/byte_tiles.h): a linear, or a convolution.
#pragma once

#include <optional>
#include <string>

#include "ops/product/packed_bytes.h"
#include "ops/quantized/affine.h"
#include "ops/quantized/slow_activation.h"
#include "packed/fused_post_ops.h"
#include "packed/kernel_steps.h"

namespace ipex::runtime {

class TiledRows {
 public:
  struct Layer {
    at::Tensor codes;    // int8 [outputs, inputs], dense
    std::string layout;  // how they follow from the weight, where they are not it
    at::Tensor scales;   // of the sums: float32 [outputs]
    at::Tensor bias;     // float32 [outputs], or undefined
    Affine input;
    std::optional<Affine> result;  // none: float32
    PostOps post_ops;
    OptionalAffines operands;
  };

  // Whether the CPU has the kernel, and that all of such a layer. `inputs` are whole words.
  static bool take(int64_t inputs, const std::optional<Affine>& result, const PostOps& post_ops,
                   const OptionalAffines& operands);
  TiledRows(const Layer& layer, const StoredForms& stored);

  // The rows from `begin` to `end`; the first of all is, or would be, at `first`.
  struct Rows {
    const uint8_t* first;
    int64_t stride, begin, end;
    const RowRuns* runs;  // as the kernel has them
  };

  // `source` and `result` are dense. `fused` are all post-ops; an operand of numbers may lie where the result does.
  void multiply(const at::Tensor& source, const FusedPostOps& fused, const at::Tensor& result) const;
  void multiply(const Rows& rows, const FusedPostOps& fused, const at::Tensor& result) const;

 private:
  const PackedBytes weight_;
  const std::optional<Affine> result_;
  const std::optional<SlowActivation> activation_;
  const KernelSteps steps_;  // before it
  bool is_rounded_at_once_;
  // Of each column.
  at::Tensor offsets_, scales_, shifts_;
  float factor_ = 0, least_ = 0, most_ = 255;
};

}  // namespace ipex::runtime
