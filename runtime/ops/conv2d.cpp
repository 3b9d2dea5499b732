// conv2d with packed weights.
//
//   ipex::conv2d_prepack(weight, bias, stride, padding, dilation, groups, post_ops, folded_scale, folded_shift)
//     -> Conv2dContext
//   ipex::conv2d_run(input, context, operands, eager_layout) -> Tensor
//
// Computes on channels-last activations, where oneDNN's brgemm kernels are fastest; an input in another layout is
// converted first. Caches one primitive per input shape and thread count.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>

#include "onednn/lru_cache.h"
#include "ops/memory_format.h"
#include "ops/packed_op.h"

namespace ipex::runtime {
namespace {

using dnnl::memory;

constexpr const char* op_name = "ipex::conv2d_run";

struct Geometry {
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
};

memory::desc channels_last(const memory::dims& sizes) {
  return {sizes, memory::data_type::f32, memory::format_tag::nhwc};
}

class Conv2dContext final : public PackedOp {
 public:
  Conv2dContext(const Spec& spec, Geometry geometry) : PackedOp(spec, 4), geometry_(std::move(geometry)) {
    TORCH_CHECK(spec.weight.size(0) % geometry_.groups == 0, op_name,
                ": expected output channels divisible by groups, got ", spec.weight.size(0), " and ", geometry_.groups,
                ". The model file is damaged: save it again.");
  }

  State state() const {
    return save(spec(), {{"stride", geometry_.stride},
                         {"padding", geometry_.padding},
                         {"dilation", geometry_.dilation},
                         {"groups", {geometry_.groups}}});
  }

  size_t cached_primitives() const override { return primitives_.size(); }

  static c10::intrusive_ptr<Conv2dContext> load(const State& state) {
    const StateReader reader(op_name, state);
    Geometry geometry{reader.integers("stride", 2, 1), reader.integers("padding", 2, 0),
                      reader.integers("dilation", 2, 1), reader.integers("groups", 1, 1)[0]};
    return c10::make_intrusive<Conv2dContext>(reader.spec(), std::move(geometry));
  }

 private:
  using Key = std::array<int64_t, 5>;  // batch, height, width, threads, fused post-ops

  int64_t input_channels() const { return weight_sizes()[1] * geometry_.groups; }

  void check_input(const at::Tensor& input) const override {
    const int64_t rank = input.dim();
    TORCH_CHECK((rank == 3 || rank == 4) && input.size(rank - 3) == input_channels(), op_name,
                ": expected input of [batch, ", input_channels(), ", height, width] or [", input_channels(),
                ", height, width] (weight is ", weight_sizes(), "), got ", input.sizes(), ".");
    const std::vector<int64_t> sizes = result_sizes(input);
    TORCH_CHECK(sizes[rank - 2] > 0 && sizes[rank - 1] > 0, op_name,
                ": expected an input at least as large as the kernel ", weight_sizes(), " after padding ",
                geometry_.padding, ", got ", input.sizes(), ".");
  }

  at::Tensor reference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const override {
    return at::conv2d(input, weight, bias, geometry_.stride, geometry_.padding, geometry_.dilation, geometry_.groups);
  }

  at::Tensor kernel_view(const at::Tensor& tensor) const override {
    return batched(tensor).contiguous(at::MemoryFormat::ChannelsLast);
  }

  at::Tensor allocate(const at::Tensor& source) const override {
    return at::empty(result_sizes(source), source.options().memory_format(at::MemoryFormat::ChannelsLast));
  }

  at::Tensor user_view(const at::Tensor& result, const at::Tensor& input, bool eager_layout) const override {
    const at::Tensor laid_out = eager_layout ? with_format(result, format_of_result(result, input)) : result;
    return input.dim() == 3 ? laid_out.squeeze(0) : laid_out;
  }

  std::vector<int64_t> result_sizes(const at::Tensor& input) const override {
    std::vector<int64_t> sizes = input.sizes().vec();
    const size_t rank = sizes.size();
    sizes[rank - 3] = weight_sizes()[0];
    for (size_t i = 0; i < 2; ++i) {
      const int64_t window = geometry_.dilation[i] * (weight_sizes()[2 + i] - 1) + 1;
      const int64_t room = sizes[rank - 2 + i] + 2 * geometry_.padding[i] - window;
      sizes[rank - 2 + i] = room < 0 ? 0 : room / geometry_.stride[i] + 1;
    }
    return sizes;
  }

  bool laid_out_as_result(const at::Tensor& tensor, const at::Tensor& input, bool eager_layout) const override {
    return batched(tensor).is_contiguous(eager_layout ? eager_format(input) : at::MemoryFormat::ChannelsLast);
  }

  std::shared_ptr<const Prepared> prepare(const at::Tensor& source, size_t fused) const override {
    const Key key{source.size(0), source.size(2), source.size(3), thread_count(), static_cast<int64_t>(fused)};
    const auto describe = [&](const memory::desc& weight_desc) {
      return primitive_desc(source.sizes().vec(), result_sizes(source), weight_desc, fused);
    };
    const auto prepared = primitives_.get(key, [&] { return first_usable(any_weight_desc(), fused, describe); });
    return {prepared, *prepared ? &**prepared : nullptr};
  }

  std::unique_ptr<const PackedWeight> pack(const at::Tensor& weight) const override {
    return std::make_unique<PackedWeight>(weight, plain_weight_desc(weight), preferred_weight_desc());
  }

  // aten keeps channels-last when either the input or the weight has it.
  at::MemoryFormat eager_format(const at::Tensor& input) const {
    const bool is_channels_last = weight_format() == at::MemoryFormat::ChannelsLast ||
                                  batched(input).suggest_memory_format() == at::MemoryFormat::ChannelsLast;
    return is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  }

  // The same after the post-ops: aten's elementwise ops take a result for contiguous that is both, as one with a single
  // channel or pixel is.
  at::MemoryFormat format_of_result(const at::Tensor& result, const at::Tensor& input) const {
    const bool is_both = !post_ops().empty() && result.is_contiguous();
    return is_both ? at::MemoryFormat::Contiguous : eager_format(input);
  }

  static at::Tensor batched(const at::Tensor& tensor) { return tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor; }

  // oneDNN gives grouped weights a dimension of their own.
  memory::dims weight_dims() const {
    const auto& sizes = weight_sizes();
    if (geometry_.groups == 1) return sizes;
    return {geometry_.groups, sizes[0] / geometry_.groups, sizes[1], sizes[2], sizes[3]};
  }

  memory::desc any_weight_desc() const { return {weight_dims(), memory::data_type::f32, memory::format_tag::any}; }

  memory::desc plain_weight_desc(const at::Tensor& weight) const {
    memory::dims strides = weight.strides().vec();
    if (geometry_.groups > 1) strides.insert(strides.begin(), strides[0] * (weight.size(0) / geometry_.groups));
    return {weight_dims(), memory::data_type::f32, strides};
  }

  // What the kernels want for an image of ordinary size: the real sizes are not known when packing.
  memory::desc preferred_weight_desc() const {
    memory::dims sizes{1, input_channels(), 0, 0};
    for (size_t i = 0; i < 2; ++i) {
      sizes[2 + i] = std::max<int64_t>(28, geometry_.dilation[i] * (weight_sizes()[2 + i] - 1) + 1);
    }
    const at::Tensor source = at::empty(sizes, at::TensorOptions(at::kMeta));
    auto desc = primitive_desc(sizes, result_sizes(source), any_weight_desc(), 0);
    if (desc && skip_reference_implementations(desc)) return desc.weights_desc();
    return {weight_dims(), memory::data_type::f32,
            geometry_.groups > 1 ? memory::format_tag::goihw : memory::format_tag::oihw};
  }

  // An empty descriptor when oneDNN refuses.
  dnnl::convolution_forward::primitive_desc primitive_desc(const memory::dims& source_sizes,
                                                           const memory::dims& result_sizes,
                                                           const memory::desc& weight_desc, size_t fused) const {
    const memory::desc result = channels_last(result_sizes);
    const memory::desc bias_desc =
        bias().defined() ? memory::desc({weight_sizes()[0]}, memory::data_type::f32, memory::format_tag::a)
                         : memory::desc();
    memory::dims dilation = geometry_.dilation;
    for (auto& d : dilation) --d;  // oneDNN counts the holes
    return {engine(),
            dnnl::prop_kind::forward_inference,
            dnnl::algorithm::convolution_direct,
            channels_last(source_sizes),
            weight_desc,
            bias_desc,
            result,
            geometry_.stride,
            dilation,
            geometry_.padding,
            geometry_.padding,
            attributes(post_ops(), fused, result),
            /*allow_empty=*/true};
  }

  Geometry geometry_;
  mutable LruCache<Key, std::optional<Prepared>> primitives_{16};
};

c10::intrusive_ptr<Conv2dContext> conv2d_prepack(const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                                 std::vector<int64_t> stride, std::vector<int64_t> padding,
                                                 std::vector<int64_t> dilation, int64_t groups,
                                                 std::vector<std::string> post_ops,
                                                 const std::optional<at::Tensor>& folded_scale,
                                                 const std::optional<at::Tensor>& folded_shift) {
  for (auto* list : {&stride, &padding, &dilation}) {
    if (list->size() == 1) list->push_back(list->front());
  }
  const Spec spec{op_name,
                  weight,
                  bias.value_or(at::Tensor()),
                  std::move(post_ops),
                  folded_scale.value_or(at::Tensor()),
                  folded_shift.value_or(at::Tensor())};
  auto context = c10::make_intrusive<Conv2dContext>(
      spec, Geometry{std::move(stride), std::move(padding), std::move(dilation), groups});
  context->ensure_packed();
  return context;
}

at::Tensor conv2d_run(const at::Tensor& input, const c10::intrusive_ptr<Conv2dContext>& context,
                      const std::vector<at::Tensor>& operands, bool eager_layout) {
  return context->run(input, operands, eager_layout);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<Conv2dContext>(m, "Conv2dContext");
  m.def(
      "conv2d_prepack(Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int groups, "
      "str[] post_ops, Tensor? folded_scale, Tensor? folded_shift) -> __torch__.torch.classes.ipex.Conv2dContext",
      conv2d_prepack);
  m.def(
      "conv2d_run(Tensor input, __torch__.torch.classes.ipex.Conv2dContext context, Tensor[] operands, "
      "bool eager_layout) -> Tensor",
      conv2d_run);
}

}  // namespace
}  // namespace ipex::runtime
