// A layer of 8-bit numbers by AMX's tiles: rows as they lie, or windows as rows. All of it, or not at all.
#include "ops/quantized/quantized_op.h"
#include "packed/dead_operand.h"

namespace ipex::runtime {

const QuantizedOp::Algorithm QuantizedOp::tiles{
    "tiles",
    [](const Call& call) -> const char* {
      if (!call.has_all()) return "not all of its post-ops are exact";
      return call.layer.is_tiled() ? nullptr : "no tiles of bytes multiply such a layer here";
    },
    [](Call& call) {
      const QuantizedOp& layer = call.layer;
      const at::Tensor result =
          call.overwrites_operand()
              ? in_memory_of(call.operands.front(), call.fused.operands.front().sizes(), layer.kernel_format())
              : layer.allocate(call.source, layer.result_dtype());
      if (const WindowRows* windows = layer.windows()) {
        const auto zero = static_cast<uint8_t>(layer.input_zero_point());
        windows->multiply(layer.tiled_rows(), call.source, zero, call.fused, result);
      } else {
        layer.tiled_rows().multiply(call.source, call.fused, result);
      }
      return result;
    }};

bool QuantizedOp::is_tiled() const {
  const int64_t inputs = windows() ? windows()->depth() : multiplies_rows() ? plain_weight().size(1) : 0;
  return inputs > 0 && (tiled_rows_->peek() || TiledRows::take(inputs, spec_.result, post_ops(), spec_.operands));
}

const TiledRows& QuantizedOp::tiled_rows() const {
  return *tiled_rows_->get([this] {
    const at::Tensor codes = windows() ? windows()->codes(plain_weight()) : plain_weight().flatten(1).contiguous();
    const std::string layout = windows() ? windows()->layout() : std::string();
    const TiledRows::Layer layer{codes,       layout,       scales_,    spec_.bias,
                                 spec_.input, spec_.result, post_ops(), spec_.operands};
    return std::make_unique<const TiledRows>(layer, weight_->stored());
  });
}

}  // namespace ipex::runtime
