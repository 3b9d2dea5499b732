// An anchor that computes in 8 bits: input and weight are 8-bit numbers, sums are exact integers, and bias and post-ops are
// applied to the sum as a float. The result is float32, or 8-bit numbers again for the next one.
//
//   y = (sum of (x - zero_point) * w) * input scale * weight scale of the channel + bias, then the post-ops
//
// oneDNN computes it on CPUs with int8 instructions. Elsewhere, and where oneDNN refuses, the packed op of float32 computes
// on the floats that the numbers stand for. It is made at the first such call.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "ops/quantized/affine.h"
#include "ops/quantized/quantized_weight.h"
#include "ops/quantized/tiled_rows.h"
#include "ops/quantized/window_rows.h"
#include "packed/algorithm.h"
#include "packed/fused_op.h"
#include "packed/packed_op.h"

namespace ipex::runtime {

struct QuantizedSpec {
  const char* name;
  at::Tensor weight;         // int8, as the float weight lies
  at::Tensor weight_scales;  // float32, one per output channel
  at::Tensor bias;           // float32, undefined when there is none
  std::vector<std::string> post_ops;
  Affine input;
  std::optional<Affine> result;  // none: float32
  OptionalAffines operands;      // of each, none: float32
};

// The spec that the arguments of a prepack op stand for. `input`, `result` and `operands` are as affines_of reads them; an
// empty `result` is float32.
struct OpNames {
  const char *prepack, *run;
};
QuantizedSpec spec_of(OpNames names, const at::Tensor& weight, const at::Tensor& weight_scales,
                      const std::optional<at::Tensor>& bias, std::vector<std::string> post_ops,
                      const std::vector<double>& input, const std::vector<double>& result,
                      const std::vector<double>& operands);

class QuantizedOp : public FusedOp {
 public:
  // Throws when a field of the spec can't be right.
  QuantizedOp(QuantizedSpec spec, int64_t weight_rank, int64_t output_channels);
  // Another one of the same weight and post-ops, with primitives of its own.
  QuantizedOp(const QuantizedOp& other);

  at::Tensor run(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const;
  Facts facts() const;
  State state() const { return save(integers()); }

 protected:
  // Throws the message that a user can act on when no implementation could take this input.
  virtual void check_input(const at::Tensor& input) const = 0;
  // The same anchor of floats.
  virtual std::unique_ptr<const PackedOp> float_op(const Spec& spec) const = 0;
  // An input or operand with the rank and layout that the kernel reads.
  virtual at::Tensor kernel_view(const at::Tensor& tensor) const = 0;
  // Sizes of the input and of the result as the primitive has them, for an input that kernel_view gives.
  virtual dnnl::memory::dims kernel_sizes(const at::Tensor& source) const = 0;
  virtual dnnl::memory::dims kernel_result_sizes(const dnnl::memory::dims& source) const = 0;
  virtual at::MemoryFormat kernel_format() const = 0;
  // An uninitialised result for a source, with the layout that the kernel writes.
  virtual at::Tensor allocate(const at::Tensor& source, at::ScalarType dtype) const = 0;
  // The result with the rank that the caller expects, and with `eager_layout` the strides.
  virtual at::Tensor user_view(const at::Tensor& result, const at::Tensor& input, bool eager_layout) const = 0;
  virtual at::DimVector result_sizes(const at::Tensor& input) const = 0;
  virtual bool laid_out_as_result(const at::Tensor& tensor, const at::Tensor& input, bool eager_layout) const = 0;
  virtual int64_t channel_dimension(int64_t rank) const = 0;
  // The same of a result as the primitive has it.
  virtual int64_t kernel_channel_dimension(int64_t rank) const = 0;
  // Whether each row of the result is made of a row of the input, that kernel_view gives, and of no other.
  virtual bool multiplies_rows() const { return false; }
  // The windows that tiles may multiply instead. Null for none.
  virtual const WindowRows* windows() const { return nullptr; }
  // Why this anchor in particular should compute an input on floats. Null when it should not.
  virtual const char* own_reason_for_floats(const at::Tensor&, bool /*eager_layout*/) const { return nullptr; }
  // One number per output channel, to multiply the plain weight with.
  virtual at::Tensor spread_over_weight(const at::Tensor& per_channel) const;
  // The weight as the primitive has it.
  virtual dnnl::memory::desc weight_desc(const at::Tensor& plain) const = 0;
  // Which dimensions of it have a scale of their own.
  virtual int weight_scales_mask() const = 0;
  virtual dnnl::memory::dims ordinary_input_sizes() const = 0;
  virtual dnnl::primitive_desc primitive_desc(const dnnl::memory::dims& source_sizes, const dnnl::memory::desc& weight,
                                              dnnl::memory::data_type result,
                                              const dnnl::primitive_attr& attr) const = 0;
  virtual Integers integers() const { return {}; }
  // The first version of the format that can say all of it.
  virtual int64_t version() const { return 1; }
  virtual dnnl::memory::desc result_desc(const dnnl::memory::dims& sizes, dnnl::memory::data_type type) const = 0;

  static QuantizedSpec read(const char* name, const State& state);

  int64_t output_channels() const { return scales_.size(0); }
  const at::Tensor& plain_weight() const { return weight_->plain(); }
  const at::Tensor& bias() const { return spec_.bias; }
  int64_t input_zero_point() const { return spec_.input.zero_point; }
  // Packs for inputs of ordinary size. Called once, by the classes that are whole.
  void pack() const;

 private:
  State save(const Integers& integers) const;
  const char* reason_for_floats(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                bool eager_layout) const;

  // A call, and what all algorithms ask of it.
  struct Call {
    const QuantizedOp& layer;
    const at::Tensor& source;  // as kernel_view gives it
    const std::vector<at::Tensor>& operands;
    bool may_accumulate;  // the first operand is added, and dead
    FusedPostOps fused;   // those that were applied, once it is done
    bool has_all() const { return fused.count == layer.post_ops().size(); }
    // Whether the result may lie where the first operand does: numbers of its shape.
    bool overwrites_operand() const;
  };
  // What they give is a result as the kernel has it, of floats or of numbers. In quantized_tiles.cpp, onednn_quantized.cpp (two) and
  // activation_apart.cpp.
  using Algorithm = runtime::Algorithm<Call>;
  static const Algorithm tiles, over_operand, activation_apart, onednn;
  at::Tensor run_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const;

  at::ScalarType result_dtype() const { return spec_.result ? at::kByte : at::kFloat; }
  // Where AMX's tiles compute the layer.
  bool is_tiled() const;
  const TiledRows& tiled_rows() const;
  at::Tensor weight_for(const Prepared& prepared) const;
  at::Tensor run_in_floats(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const;
  std::vector<at::Tensor> as_floats(const std::vector<at::Tensor>& operands) const;
  FusedPostOps fuse(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const;
  std::shared_ptr<const Prepared> prepare(const at::Tensor& source, const FusedPostOps& fused, bool quantizes) const;
  dnnl::primitive_desc any_primitive_desc(const dnnl::memory::dims& source, const FusedPostOps& fused, bool quantizes,
                                          const dnnl::memory::desc& weight) const;
  dnnl::primitive_attr attributes(const FusedPostOps& fused, const dnnl::memory::desc& result, bool quantizes) const;
  Prepared::Constants constants(bool quantizes) const;
  // Post-ops that are left, and the numbers that the caller wants.
  at::Tensor finish(at::Tensor y, const std::vector<at::Tensor>& operands, size_t done) const;

  QuantizedSpec spec_;  // without the weight
  std::shared_ptr<const QuantizedWeight> weight_;
  // Shared by those that differ in padding alone.
  std::shared_ptr<const Lazy<TiledRows>> tiled_rows_ = std::make_shared<const Lazy<TiledRows>>();
  mutable std::once_flag made_float_op_;
  mutable std::unique_ptr<const PackedOp> float_op_;
  // What the primitives are handed. The input's scale is in those of the weight.
  at::Tensor scales_, input_zero_point_, result_scale_, result_zero_point_;
};

}  // namespace ipex::runtime
