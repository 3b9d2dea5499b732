// A layer that ends in an activation which oneDNN takes long for: a kernel of our own makes numbers of oneDNN's floats, some
// rows at a time, which are still near.
#include "kernels/kernels.h"
#include "ops/quantized/quantized_op.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// Which of them oneDNN takes so long for that floats between are worth it.
bool is_slow_of_onednn(SlowActivation activation) {
  return activation == SlowActivation::silu || activation == SlowActivation::sigmoid;
}

// Some rows of what kernel_view gives, as the same kind of tensor.
at::Tensor rows_of(const at::Tensor& source, int64_t width, int64_t first, int64_t count) {
  if (source.dim() != 4) return at::as_strided(source, {count, width}, {width, 1}, first * width);
  return at::as_strided(source, {1, width, 1, count}, {count * width, 1, count * width, width}, first * width);
}

}  // namespace

const QuantizedOp::Algorithm QuantizedOp::activation_apart{
    "activation apart",
    [](const Call& call) -> const char* {
      const QuantizedOp& layer = call.layer;
      if (!kernels().quantize.activate) return "no kernel of this CPU rounds activations";
      if (!layer.spec_.result || call.fused.count == 0 || !call.has_all()) return "its result is not rounded at once";
      const auto activation = last_slow_activation(layer.post_ops(), /*is_rounded=*/true);
      if (!activation || !is_slow_of_onednn(*activation)) return "it ends in no activation that takes oneDNN long";
      constexpr int64_t least_elements = 4096;
      const int64_t elements = c10::multiply_integers(layer.kernel_result_sizes(layer.kernel_sizes(call.source)));
      return elements < least_elements ? "its result is small" : nullptr;
    },
    [](Call& call) -> at::Tensor {
      constexpr int64_t elements_of_a_piece = 1 << 16, elements_worth_a_thread = 16384;
      const QuantizedOp& layer = call.layer;
      const auto kernel = kernels().quantize.activate;
      const auto activation = *last_slow_activation(layer.post_ops(), /*is_rounded=*/true);
      const at::Tensor& source = call.source;
      const at::Tensor result = layer.allocate(source, at::kByte);
      FusedPostOps before = call.fused;
      --before.count;
      // So many rows that their floats fit the second cache.
      const int64_t columns = layer.output_channels(), rows = result.numel() / columns;
      const bool cuts = layer.multiplies_rows() && before.operands.empty();
      const int64_t most = elements_of_a_piece * thread_count() / columns,
                    pieces = cuts && most > 0 ? at::divup(rows, most) : 1;
      const int64_t rows_of_a_piece = at::divup(rows, pieces);
      const AffineRounding rounding(*layer.spec_.result);
      for (int64_t first = 0; first < rows; first += rows_of_a_piece) {
        const int64_t count = std::min(rows_of_a_piece, rows - first);
        const at::Tensor piece = pieces == 1 ? source : rows_of(source, source.numel() / rows, first, count);
        const std::shared_ptr<const Prepared> prepared = layer.prepare(piece, before, /*quantizes=*/false);
        if (!prepared) return {};
        const at::Tensor floats = layer.allocate(piece, at::kFloat);
        if (prepared->run(piece, layer.weight_for(*prepared), layer.bias(), floats, before.operands)) return {};
        const float* x = floats.const_data_ptr<float>();
        uint8_t* numbers = result.mutable_data_ptr<uint8_t>() + first * columns;
        parallel_for(count * columns, elements_worth_a_thread, [&](int64_t begin, int64_t end) {
          kernel(activation, x + begin, end - begin, rounding.inverse_scale, rounding.zero_point, numbers + begin);
        });
      }
      return result;
    }};

}  // namespace ipex::runtime
