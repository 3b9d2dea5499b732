// A packed op: an anchor with a packed weight, then post-ops. Here is what all anchors share: which part of a call oneDNN
// computes, and how a context is saved and loaded.
#pragma once

#include <ATen/core/Dict.h>
#include <ATen/core/Tensor.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "packed/dead_operand.h"
#include "packed/dtype.h"
#include "packed/facts.h"
#include "packed/fused_op.h"
#include "packed/packed_weight.h"

namespace ipex::runtime {

// A saved context: format version, plain tensors, integer fields, post-ops in order.
// A reader of version n reads every version up to n. A field that older readers may ignore needs no new version; a field
// that changes the result does. A state is written with the lowest version that can express it, so that older readers can
// read as much as possible. Version 2 added the math mode, version 3 weights of bfloat16 and float16, version 4 channels
// that a batch_norm has made vanish, and constants that widen, version 5 linears with short floats for weights, or with inputs
// in another order, version 6 sums of convolutions, version 7 those with the image among what is added, version 8 linears whose
// codes stand for the values of a table.
constexpr int64_t format_version = 8;
using State = std::tuple<int64_t, c10::Dict<std::string, at::Tensor>, c10::Dict<std::string, std::vector<int64_t>>,
                         std::vector<std::string>>;

// Fields that every anchor has. `weight` and `bias` are plain; `name` is the run op, for messages. The bias has the
// weight's dtype or, next to a 16-bit weight too, float32.
struct Spec {
  const char* name;
  at::Tensor weight;
  at::Tensor bias;  // undefined when there is none
  std::vector<std::string> post_ops;
  // The batch_norm that was folded into weight and bias, undefined when there is none: y * scale + shift. Folding is
  // right for inputs of the weight's rank; for others the batch_norm is taken out again and done by itself. float32.
  at::Tensor folded_scale;
  at::Tensor folded_shift;
  PinnedMathMode math_mode;
  // Of each channel whose scale is so small that nothing can be divided by it, in order: the weight before the folding,
  // and then the bias. Undefined when there is none. float32, [channels, elements of a channel's weight + 1].
  at::Tensor vanished;
  // Whether a float32 tensor was folded: beside a 16-bit result of autocast's it gives float32.
  bool widens = false;
  // Whether an image without a batch is refused: by aten::convolution, or because several batch_norms were folded, as
  // branches of one image that were added. For such an image these are others, and can't be taken out again.
  bool needs_batch = false;
  // Whether the weight is that of several convolutions whose results were added, to a tensor of its own: where the result
  // is contiguous and channels-last at once, as one pixel is, it has the strides of an elementwise op.
  bool is_sum = false;
  // Whether the image itself was folded, or a batch_norm of it: one of another dtype widens the result of autocast.
  bool adds_input = false;
};

// Smaller scales are not divided by.
constexpr double least_scale = 1e-20;

using Integers = std::map<std::string, std::vector<int64_t>>;

State save(const Spec& spec, const Integers& integers);

// Reads a state field by field. Each call throws, naming what was expected, when the field is missing or malformed. The
// constructor throws where a tensor reaches beyond its storage: a file may say anything about sizes, strides and offset.
class StateReader {
 public:
  StateReader(const char* name, const State& state);

  Spec spec() const;
  // Undefined where the state has none of this name.
  at::Tensor tensor(const char* key) const;
  // None where the context follows the process.
  PinnedMathMode math_mode() const;
  // `count` integers, each at least `minimum`.
  std::vector<int64_t> integers(const std::string& key, size_t count, int64_t minimum) const;

 private:
  const char* name_;
  const State& state_;
};

class PackedOp : public FusedOp {
 public:
  // Throws when a field of the spec can't be right, before anything is allocated. `layout_depends_on` is what, beside the
  // fields of the spec, decides how the weight is laid out.
  PackedOp(const Spec& spec, int64_t weight_rank, int64_t output_channels,
           const std::vector<int64_t>& layout_depends_on = {});
  // Another one of the same weight and post-ops, with primitives of its own.
  PackedOp(const PackedOp& other);

  // The whole computation. With `eager_layout` the result has the strides that eager would give, else those that the
  // kernel writes. `operands` holds one tensor per post-op that takes one, in order. They are only read, but for a dead
  // one that is added (packed/dead_operand.h): its memory may become the result's.
  at::Tensor run(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const;

  // Packs the weight now rather than at the first call, and warns where the CPU will be slow with it.
  void ensure_packed() const;

  // Of the weight, and so of the inputs and results that oneDNN computes on.
  at::ScalarType dtype() const { return weight_->dtype(); }
  // For weights of 16 bits: whether calls are computed in float32.
  bool is_in_float() const { return dtype() != at::kFloat && computes_in_float(); }
  // The op with a float32 weight, and with so many of the post-ops. Made once and kept.
  c10::intrusive_ptr<PackedOp> in_float(size_t post_op_count) const;
  // How many post-ops can be computed in float32: those before the first one whose operand has another dtype. The operands
  // up to there are added to `wide`, in float32.
  size_t widen(const std::vector<at::Tensor>& operands, std::vector<at::Tensor>& wide) const;

  Facts facts() const;
  // What a save writes, with the plain weight made again.
  Spec spec() const;

 protected:
  // Throws the message that a user can act on when no implementation could take this input.
  virtual void check_input(const at::Tensor& input) const = 0;
  // The anchor alone, in aten, with gradients if the input wants them.
  virtual at::Tensor reference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const = 0;

  // An input or operand with the rank and layout that the kernel reads.
  virtual at::Tensor kernel_view(const at::Tensor& tensor) const = 0;
  // An input as kernel_view gives it, with what the kernel wants beside.
  virtual at::Tensor kernel_source(const at::Tensor& input) const { return kernel_view(input); }
  // The sizes of an input that kernel_source gives, as the kernel sees them.
  virtual at::DimVector kernel_sizes(const at::Tensor& source) const { return at::DimVector(source.sizes()); }
  // An uninitialised result with the rank and layout that the kernel writes.
  virtual at::Tensor allocate(const at::Tensor& source) const = 0;
  // That layout.
  virtual at::MemoryFormat kernel_format() const = 0;
  // The result with the rank that the caller expects, and with `eager_layout` the strides.
  virtual at::Tensor user_view(const at::Tensor& result, const at::Tensor& input, bool eager_layout) const = 0;
  // The sizes of user_view's result.
  virtual at::DimVector result_sizes(const at::Tensor& input) const = 0;
  // Whether `tensor` is laid out as user_view's result will be.
  virtual bool laid_out_as_result(const at::Tensor& tensor, const at::Tensor& input, bool eager_layout) const = 0;
  // Why this anchor in particular should leave the input to aten. Null when it should not.
  virtual const char* own_reason_for_aten(const at::Tensor&, bool /*eager_layout*/) const { return nullptr; }
  // Of an input of the rank that a batch has, and of a result of rank `rank`, the dimension that holds the channels.
  virtual int64_t batch_rank() const = 0;
  virtual int64_t channel_dimension(int64_t rank) const = 0;
  // The weight with each output channel divided by its element of `divisor`.
  virtual at::Tensor divided(const at::Tensor& weight, const at::Tensor& divisor) const = 0;
  // Packs a plain weight that has weight_format's strides: see BlockedWeight's constructor.
  virtual std::unique_ptr<const BlockedWeight> pack(at::Tensor& weight) const = 0;
  // The primitive for this source that applies the first post-ops. Null when oneDNN has none worth running.
  std::shared_ptr<const Prepared> prepare(const at::Tensor& source, const FusedPostOps& fused) const;
  // Its description with this weight layout. Empty when oneDNN refuses.
  virtual dnnl::primitive_desc primitive_desc(const std::vector<int64_t>& source_sizes,
                                              const dnnl::memory::desc& weight_desc, const FusedPostOps& fused,
                                              FP32MathMode mode) const = 0;
  virtual dnnl::memory::desc any_weight_desc() const = 0;
  // The bytes of each copy of the weight that a context has made.
  virtual Facts::Values copies() const { return {}; }
  // The anchor computed by a kernel of our own, with the first `done` post-ops, as the caller gets it. Undefined where
  // oneDNN's is to be taken.
  virtual at::Tensor run_own_kernel(const at::Tensor& /*input*/, const std::vector<at::Tensor>& /*operands*/,
                                    bool /*may_accumulate*/, bool /*eager_layout*/, size_t& /*done*/) const {
    return {};
  }
  // Whether the result may be written over the first operand. Asked before fuse(), which holds it too.
  bool may_write_over(const std::vector<at::Tensor>& operands) const {
    return begins_with_addition() && is_dead(operands.front());
  }
  // For weights of 16 bits: whether the op converts its input to float32, computes in that, and rounds the result.
  virtual bool computes_in_float() const { return is_faster_in_float(dtype()); }
  // The op with another weight and bias, and other post-ops.
  virtual c10::intrusive_ptr<PackedOp> with(const Spec& spec) const = 0;
  // Such a call. `done` says how many post-ops were applied.
  virtual at::Tensor run_in_float(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                                  size_t& done) const;
  // fuse() for the result of a call.
  FusedPostOps fuse_into_result(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                                bool (*applies)(const PostOp&) = is_exact) const;
  // The mode that the weight is laid out for. It is packed once, whatever the process's mode becomes.
  FP32MathMode math_mode_for_packing() const {
    return dtype() == at::kFloat ? math_mode().value_or(FP32MathMode::FP32) : FP32MathMode::FP32;
  }

  dnnl::memory::data_type data_type() const { return data_type_of(dtype()); }
  dnnl::memory::data_type bias_data_type() const { return data_type_of(bias_.scalar_type()); }
  const std::vector<int64_t>& weight_sizes() const { return weight_->sizes(); }
  at::MemoryFormat weight_format() const { return weight_->format(); }
  const at::Tensor& bias() const { return bias_; }
  // Shared with the contexts that were made from the same plain weight.
  const PackedWeight& weight() const { return *weight_; }
  const StoredForms& stored_forms() const { return weight_->stored(); }
  // Null where oneDNN does not compute in its dtype on this CPU: it stays plain.
  const BlockedWeight* blocked_weight() const {
    return weight_->blocked([this](at::Tensor& plain) { return pack(plain); });
  }
  at::Tensor plain_weight() const {
    return weight_->plain([this](at::Tensor& plain) { return pack(plain); });
  }
  // Why aten computes all of a call with an input that check_input lets pass. Null when it does not.
  const char* reason_for_aten(const at::Tensor& input, bool eager_layout) const;
  // Whether it is an op on the convolution's result that gives eager's: a sum, or a batch_norm.
  bool follows_anchor() const { return is_sum_ || folded_scale_.defined(); }
  // Whether a batch_norm was folded that is another one for inputs of this rank.
  bool is_folded_for_another_rank(int64_t rank) const { return folded_scale_.defined() && rank != batch_rank(); }

 private:
  class CallResult;

  // Runs the anchor, with oneDNN as many leading post-ops as it takes in one go; `done` says how many. Undefined when
  // there is no kernel for it at all.
  at::Tensor run_primitive(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                           size_t& done) const;
  // The same written over a dead operand, the first of `fused`. Undefined where that can't be done.
  at::Tensor accumulate(const at::Tensor& source, const at::Tensor& dead, FusedPostOps fused) const;
  at::Tensor run_reference(const at::Tensor& input) const;

  const std::shared_ptr<const PackedWeight> weight_;
  at::Tensor bias_;
  // The weight and bias without the folded batch_norm, in float32.
  std::pair<at::Tensor, at::Tensor> unfolded() const;

  // By how many post-ops it has.
  mutable LruCache<PrimitiveKey, c10::intrusive_ptr<PackedOp>> in_float_{2};
  at::Tensor folded_scale_, folded_shift_, vanished_;
  const bool widens_, needs_batch_, is_sum_, adds_input_;
};

// The run op of a context. Boxed, because only the stack tells who else holds the operands.
template <typename Context>
void run_boxed(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  const bool eager_layout = torch::jit::pop(*stack).toBool();
  const std::vector<at::Tensor> operands = take_tensors(torch::jit::pop(*stack));
  const auto context = torch::jit::pop(*stack).toCustomClass<Context>();
  torch::jit::push(*stack, context->run(torch::jit::pop(*stack).toTensor(), operands, eager_layout));
}

// Makes a context known to TorchScript, with what a saved model and a curious user need of it.
template <typename Context>
void define_context(torch::Library& library, const char* name) {
  using Pointer = c10::intrusive_ptr<Context>;
  auto context_class = library.class_<Context>(name);
  if constexpr (requires(const Context& context) { context.primitive_kernels(); }) {
    context_class.def("primitive_kernels", [](const Pointer& context) { return context->primitive_kernels(); });
  }
  context_class.def("fallback_reasons", [](const Pointer& context) { return context->fallback_reasons(); })
      .def("cached_primitives",
           [](const Pointer& context) { return static_cast<int64_t>(context->cached_primitives()); })
      .def("primitive_math_modes", [](const Pointer& context) { return context->primitive_math_modes(); })
      .def("facts", [](const Pointer& context) { return context->facts().by_name(); })
      .def("describe", [](const Pointer& context) { return context->facts().in_words(); })
      // What torch.compile asks of a class that stands in a graph. Nothing of a context shows there.
      .def("__obj_flatten__",
           [](const Pointer&) {
             return std::tuple<std::tuple<std::string, std::string>>(
                 std::tuple(std::string("kind"), std::string("context")));
           })
      .def("__eq__", [](const Pointer& a, const Pointer& b) { return a == b; })
      .def("__repr__", [](const Pointer& context) { return context->facts().in_words(); })
      .def_pickle([](const Pointer& context) { return context->state(); },
                  [](const State& state) { return Context::load(state); });
}

}  // namespace ipex::runtime
