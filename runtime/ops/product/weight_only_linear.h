// A linear whose weight alone is kept in few bits: weight_only_linear.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/product/low_bit_linear.h"

namespace ipex::runtime {

class WeightOnlyLinearContext final : public LowBitLinear {
 public:
  using Pointer = c10::intrusive_ptr<WeightOnlyLinearContext>;
  using Layers = at::ArrayRef<c10::intrusive_ptr<WeightOnlyLinearContext>>;

  using LowBitLinear::LowBitLinear;

  static c10::intrusive_ptr<WeightOnlyLinearContext> load(const State& state);

  // The results of layers that read one input, which is prepared once, in one parallel region. Of each, `operands` says which
  // one before it gives its operand, or -1. None where they read the input in different ways, or one would run in another way
  // by itself.
  static std::vector<at::Tensor> run_at_once(Layers layers, const at::Tensor& input, at::IntArrayRef operands);

  // Layers that each read rows of their own of an input, one group behind the other, in one parallel region. They write those
  // rows of the result. False where a layer would run in another way by itself: then nothing is written.
  struct Group {
    const WeightOnlyLinearContext* layer;
    int64_t first, count;
  };
  static bool run_in_groups(at::ArrayRef<Group> groups, const at::Tensor& input, const at::Tensor& result);

  // The same weight with more post-ops, and rows of so many bits. Itself where both are as they were: who saves both saves one.
  static Pointer again(const Pointer& packed, const std::vector<std::string>& post_ops,
                       std::optional<int64_t> row_bits);

  // Rows of the weight in floats, as of a table of embeddings.
  at::Tensor embed(const at::Tensor& indices) const;

 private:
  int digits() const { return static_cast<int>(spec().row_bits / 8); }
  // Whether what is made of rows for one weight is what the other one wants.
  bool reads_rows_as(const WeightOnlyLinearContext& other) const;
  std::unique_ptr<const PackedCodes> pack(const LowBitSpec& spec) const override;
  void multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const override;
  const char* rows_are() const override;
};

// What the ops of these names do with codes.
c10::intrusive_ptr<WeightOnlyLinearContext> weight_only_linear_prepack(
    const at::Tensor& codes, const at::Tensor& scales, const std::optional<at::Tensor>& offsets,
    const std::optional<at::Tensor>& order, const std::optional<at::Tensor>& bias, std::vector<std::string> post_ops,
    int64_t inputs, int64_t group_size, int64_t row_bits, const std::optional<at::Tensor>& values);
at::Tensor weight_only_linear(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                              const std::optional<at::Tensor>& offsets, const std::optional<at::Tensor>& order,
                              const std::optional<at::Tensor>& bias, int64_t inputs, int64_t group_size,
                              int64_t row_bits, const std::optional<at::Tensor>& values);

}  // namespace ipex::runtime
