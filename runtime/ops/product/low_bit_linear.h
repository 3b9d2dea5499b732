// A linear whose weight is kept as codes with scales: integers, or short floats. What its kinds share: which calls their
// kernels take, post-ops, and a weight that is packed once.
//
//   number of the weight = (code - offset) * scale
//
// aten computes the other calls, with the weight as these numbers in float32.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aot/stored_forms.h"
#include "ops/product/low_bit_format.h"
#include "ops/product/product.h"
#include "packed/kernel_steps.h"
#include "packed/lazy.h"
#include "packed/packed_op.h"

namespace ipex::runtime {

// All that is saved.
struct LowBitSpec {
  const char* name;  // of the run op, for messages
  // [outputs, inputs] of the format's dtype; or uint8 [outputs, half the inputs], two codes of 4 bits a byte, the first in
  // the lower half.
  at::Tensor codes;
  at::Tensor scales;   // float32 [outputs, groups]
  at::Tensor offsets;  // the same, or undefined where all are zero, as those of floats are
  at::Tensor bias;     // float32 [outputs], or undefined
  // int64 [inputs]: which input of the call meets which of the codes. Undefined where they meet in order.
  at::Tensor order;
  std::vector<std::string> post_ops;
  int64_t inputs;
  int64_t group_size;  // inputs that share a scale
  // Whether inputs of bfloat16 and float16 are taken as well, and give results of their dtype.
  bool follows_input = false;
  // How near the kernels of integers take the rows: to 8 or 16 bits of the largest number of a group, or as floats are.
  int64_t row_bits = 24;
  at::Tensor values;  // float32 [16]: of a format with a table, its own. Undefined for others

  int64_t outputs() const { return codes.size(0); }
  const LowBitFormat& format() const { return *low_bit_format(codes.scalar_type(), values.defined()); }
  int64_t groups() const { return (inputs + group_size - 1) / group_size; }
};

// Reads a state, and throws where a field is missing or malformed.
LowBitSpec low_bit_spec(const char* name, const State& state);

// In aten, with the weight that codes stand for in the input's dtype: some outputs of it at a time.
at::Tensor linear_of_numbers(const at::Tensor& input, const LowBitSpec& weight);

// Two codes of 4 bits a byte, as they are saved.
at::Tensor in_halves(const at::Tensor& codes);

// Codes, scales and offsets in the layout of a kernel, which nothing else holds.
class PackedCodes {
 public:
  virtual ~PackedCodes() = default;
  // As they are saved, bit for bit.
  virtual at::Tensor codes() const = 0;
  virtual at::Tensor scales() const = 0;
  virtual at::Tensor offsets() const = 0;
};

class LowBitLinear : public FusedOp {
 public:
  // Throws when a field of the spec can't be right, before anything is allocated.
  explicit LowBitLinear(LowBitSpec spec);
  // The same weight and bias, with other post-ops, and rows of so many bits.
  LowBitLinear(const LowBitLinear& other, const std::vector<std::string>& post_ops, int64_t row_bits);

  // The whole computation. The result is dense, whatever `eager_layout` is.
  at::Tensor run(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const;

  // Packs the codes now rather than at the first call.
  void ensure_packed() const { packed(); }

  State state() const;
  Facts facts() const;

  using FusedOp::name;
  int64_t input_width() const { return spec_.inputs; }
  int64_t output_width() const { return outputs_; }

 protected:
  virtual std::unique_ptr<const PackedCodes> pack(const LowBitSpec& spec) const = 0;
  virtual void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const = 0;
  // What the rows are computed in, for the description.
  virtual const char* rows_are() const = 0;

  int64_t inputs() const { return spec_.inputs; }
  int64_t outputs() const { return outputs_; }
  // Without codes, scales and offsets.
  const LowBitSpec& spec() const { return spec_; }
  bool has_offsets() const { return has_offsets_; }
  const StoredForms& stored_forms() const { return weight_->stored; }
  const LowBitFormat& format() const { return format_; }
  const PackedCodes& packed() const;

  at::DimVector result_sizes(const at::Tensor& input) const;
  // Whether the kernels multiply this input.
  bool takes(const at::Tensor& input) const;
  bool is_as_wide_as(const LowBitLinear& other) const { return outputs_ == other.outputs_; }
  // What follows the product, and what that refers to.
  struct StepsOfCall {
    FusedPostOps fused;
    KernelSteps::Room room;
    ElementwiseSteps steps;
  };
  // False where the kernels don't have all of it.
  bool all_steps(const std::vector<at::Tensor>& operands, const at::DimVector& sizes, StepsOfCall& to) const;

 private:
  class CallResult;
  // An object of its own, that contexts share. It never changes for those who read it.
  struct Weight {
    explicit Weight(LowBitSpec spec)
        : unpacked(std::move(spec)), stored(StoredForms::of(unpacked->codes, StoredForms::Plain::dropped)) {}

    mutable std::optional<LowBitSpec> unpacked;  // until it is packed
    const StoredForms stored;
    Lazy<PackedCodes> packed;
  };

  const char* reason_for_aten(const at::Tensor& input) const;
  // The post-ops that kernels apply to a result of these sizes.
  FusedPostOps fused_with(const std::vector<at::Tensor>& operands, const at::DimVector& sizes) const;
  at::Tensor run_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands, size_t& done) const;
  // With what is packed.
  LowBitSpec whole_spec() const;

  const std::shared_ptr<const Weight> weight_;
  const LowBitSpec spec_;
  const bool has_offsets_;
  const int64_t outputs_;
  const LowBitFormat& format_;
  const KernelSteps steps_;
};

}  // namespace ipex::runtime
