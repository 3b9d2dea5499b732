// A linear's context: what its own op runs, and several linears as one op (linear_chain.cpp, joined_linears.cpp,
// grouped_linear.cpp).
#pragma once

#include <memory>

#include "ops/product/bf16_weight.h"
#include "packed/algorithm.h"
#include "packed/kernel_steps.h"
#include "packed/memory_format.h"
#include "packed/packed_op.h"

namespace ipex::runtime {

class LinearContext final : public PackedOp {
 public:
  using FusedOp::name;
  explicit LinearContext(const Spec& spec);

  State state() const { return save(spec(), {}); }
  static c10::intrusive_ptr<LinearContext> load(const State& state);

  int64_t input_width() const { return weight_sizes()[1]; }
  int64_t output_width() const { return weight_sizes()[0]; }

  // Whether run() takes such an input, and finds no reason to leave it to aten.
  bool accepts(const at::Tensor& input) const { return fits(input) && !reason_for_aten(input, /*eager_layout=*/true); }
  // Whether run() computes an accepted input of this rank and so many rows by multiply() alone. An input that another
  // linear has computed is accepted if that one's input was.
  bool is_for_few_rows(int64_t rank, int64_t rows) const;
  // Whether multiply() gives what run() does for an input of this rank that run() accepts.
  bool multiplies_alone(int64_t rank) const;
  // The rows of the plain weight that the indices name, as at::embedding.
  at::Tensor embed(const at::Tensor& indices) const;
  // A new tensor, or where the weight stays plain that.
  at::Tensor plain() const { return plain_weight(); }
  at::DimVector result_sizes(const at::Tensor& input) const override;
  // All post-ops included. The result is dense.
  void multiply(const InputRows& rows, float* result) const;
  // What that multiplies. It lives as long as this object.
  RowsProduct product(const InputRows& rows, float* result) const;

 private:
  int64_t batch_rank() const override { return 2; }
  int64_t channel_dimension(int64_t rank) const override { return rank - 1; }

  bool fits(const at::Tensor& input) const { return input.dim() >= 1 && input.size(-1) == input_width(); }
  void check_input(const at::Tensor& input) const override;
  at::Tensor reference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const override;
  at::Tensor divided(const at::Tensor& weight, const at::Tensor& divisor) const override;
  c10::intrusive_ptr<PackedOp> with(const Spec& spec) const override {
    return c10::make_intrusive<LinearContext>(spec);
  }
  // Of float16 oneDNN's kernels take no longer than of float32.
  bool computes_in_float() const override {
    return is_faster_in_float(dtype()) && (dtype() != at::kHalf || reason_against_dtype(dtype()));
  }
  // A weight of bfloat16 needs no copy in float32: its panels are widened one by one.
  at::Tensor run_in_float(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout,
                          size_t& done) const override;

  at::Tensor kernel_view(const at::Tensor& tensor) const override { return contiguous_result(tensor); }
  at::Tensor kernel_source(const at::Tensor& input) const override;
  // The width of what kernel_source gives: more than the input's where kernels would read the next row (row_width.h).
  int64_t kernel_width() const;
  // All leading dimensions are one to it.
  at::DimVector kernel_sizes(const at::Tensor& source) const override {
    return {source.numel() / kernel_width(), kernel_width()};
  }
  int64_t row_count(const at::Tensor& input) const { return input.numel() / input_width(); }
  at::Tensor allocate(const at::Tensor& source) const override;
  at::MemoryFormat kernel_format() const override { return at::MemoryFormat::Contiguous; }
  at::Tensor user_view(const at::Tensor& result, const at::Tensor&, bool) const override { return result; }
  bool laid_out_as_result(const at::Tensor& tensor, const at::Tensor&, bool) const override {
    return tensor.is_contiguous();
  }

  std::unique_ptr<const BlockedWeight> pack(at::Tensor& weight) const override;
  bool has_own_kernels() const;
  // Whether so many rows are multiplied on tiles (ops/product/tile_product.h).
  WeightTiles tiles_for(int64_t rows) const;
  const Bf16Weight& rounded_weight() const;
  // The packed weight of bfloat16, where a kernel of our own reads it faster than oneDNN's for so many rows.
  const PairPanels* pairs_for(int64_t rows) const;
  Facts::Values copies() const override;

  // A call, and what its algorithms ask of it.
  struct Call {
    const LinearContext& layer;
    const at::Tensor& input;
    const std::vector<at::Tensor>& operands;
    bool may_accumulate, eager_layout;
    int64_t rows = layer.row_count(input);
    size_t done = 0;  // how many post-ops were applied
  };
  using Algorithm = runtime::Algorithm<Call>;
  static const Algorithm pairs, rounded, panels;
  at::Tensor run_own_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool may_accumulate,
                            bool eager_layout, size_t& done) const override;
  // The rows of a call by `multiply(rows, steps, result)`.
  template <typename Multiply>
  static at::Tensor compute(Call& call, const Multiply& multiply);

  dnnl::memory::desc plain_weight_desc() const;
  dnnl::memory::desc any_weight_desc() const override;
  dnnl::memory::desc preferred_weight_desc() const;
  dnnl::primitive_desc primitive_desc(const std::vector<int64_t>& source_sizes, const dnnl::memory::desc& weight_desc,
                                      const FusedPostOps& fused, FP32MathMode mode) const override;

  const KernelSteps steps_;
};

}  // namespace ipex::runtime
