// In BF32, where oneDNN rounds nothing by itself, or on tiles: image and a copy of the weight in bfloat16, for oneDNN.
#include "isa/isa.h"
#include "ops/convolution/convolution.h"
#include "ops/product/bf16_weight.h"
#include "ops/product/tile_product.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using dnnl::memory;

// The weight in bfloat16, in a layout for oneDNN. Null where it has no kernel.
struct RoundedWeight {
  explicit RoundedWeight(std::unique_ptr<const BlockedWeight> weight) : blocked(std::move(weight)) {}
  std::unique_ptr<const BlockedWeight> blocked;
};

}  // namespace

const ConvolutionContext::Algorithm ConvolutionContext::rounded_windows{
    "rounded_windows",
    [](const Call& call) {
      constexpr int64_t least_channels = 16, least_products = 1 << 21;
      const ConvolutionContext& layer = call.layer;
      const int64_t channels = layer.input_channels();
      if (layer.dtype() != at::kFloat || !call.may_round) return "it may not round";
      if (!isa::is_in_use(isa::Level::AMX) && !isa::has_fast_avx512_bf16()) return "this CPU is not fast in bfloat16";
      if (layer.geometry_.transposed) return "it is transposed";
      if (layer.geometry_.groups > 1) return "it has groups";
      if (channels % 2 != 0 || (isa::is_in_use(isa::Level::AMX) && !layer.are_whole_tiles(channels))) {
        return "its channels fill no pairs or tiles";
      }
      const bool pays = std::min(channels, layer.output_channels()) >= least_channels &&
                        call.pixels * c10::multiply_integers(layer.weight_sizes()) >= least_products;
      return pays ? nullptr : "it has few products";
    },
    [](Call& call) { return call.layer.run_rounded(call); }};

Tensor ConvolutionContext::run_rounded(Call& call) const {
  const Tensor image = kernel_view(call.input);
  const FusedPostOps fused = fuse_into_result(call.input, call.operands, call.eager_layout);
  const auto desc_of = [&](const memory::desc& weight) {
    auto desc = convolution_desc(image.sizes().vec(), weight, fused, FP32MathMode::FP32, memory::data_type::bf16);
    return desc && skip_reference_implementations(desc) ? desc : dnnl::primitive_desc();
  };
  constexpr const char* kind = "bfloat16";
  const auto make = [&] {
    const dnnl::primitive_desc desc = desc_of({weight_dims(), memory::data_type::bf16, memory::format_tag::any});
    if (!desc) return std::make_unique<const RoundedWeight>(nullptr);
    Tensor plain = at::empty(weight_sizes(), at::TensorOptions(at::kBFloat16).memory_format(weight_format()));
    if (!is_stored_in_layout(stored_forms(), kind, desc.weights_desc())) plain.copy_(plain_weight());
    return std::make_unique<const RoundedWeight>(
        std::make_unique<BlockedWeight>(plain, plain_weight_desc(plain), desc.weights_desc(), stored_forms(), kind));
  };
  const BlockedWeight* rounded = weight().derived<RoundedWeight>(make).blocked.get();
  if (!rounded) return {};
  const auto prepared =
      this->prepared(at::kBFloat16, PrimitiveKey(image.sizes()), fused, [&](FP32MathMode) -> std::optional<Prepared> {
        const dnnl::primitive_desc desc = desc_of(rounded->desc());
        return desc ? std::optional(Prepared(desc, bias().defined())) : std::nullopt;
      });
  if (!prepared) return {};
  const Tensor source = empty_result(image.sizes(), image.options().dtype(at::kBFloat16).memory_format(channels_last_));
  source.copy_(image);
  const Tensor result = allocate(image);
  if (prepared->run(source, *rounded, bias(), result, fused.operands)) return {};
  call.done = fused.count;
  return user_view(result, call.input, call.eager_layout);
}

Facts::Values ConvolutionContext::copies() const {
  const auto copy = [](size_t bytes) { return Facts::Values{{"bfloat16_copy_bytes", static_cast<int64_t>(bytes)}}; };
  if (const Bf16Weight* rounded = weight().made<Bf16Weight>()) return copy(rounded->bytes());
  if (const Facts::Values tiles = kept_tiles(weight()); !tiles.empty()) return tiles;
  const auto* rounded = weight().made<RoundedWeight>();
  return rounded && rounded->blocked ? copy(rounded->blocked->desc().get_size()) : Facts::Values();
}

}  // namespace ipex::runtime
