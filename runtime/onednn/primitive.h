// What all ops have in common when they talk to oneDNN: the attributes of a primitive, the choice of an implementation
// worth running, and its execution on plain pointers.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "math_mode.h"
#include "onednn/blocked_weight.h"
#include "onednn/dnnl.h"
#include "onednn/engine.h"

namespace ipex::runtime {

// Attributes of a primitive that computes in this mode, and gets its scratch memory from us.
dnnl::primitive_attr attributes(FP32MathMode math_mode);

// Moves `desc` on to the first implementation that is no slow reference loop. False when there is none.
bool skip_reference_implementations(dnnl::primitive_desc& desc);

// What a run hands to a primitive. Making these costs more than a small product, so each is kept for the next run.
struct ExecutionArguments {
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> list;  // of the memories, in the same order
};

// Keeps the arguments of one run; of runs side by side, those of one.
class SpareArguments {
 public:
  ~SpareArguments() { delete kept_.load(); }

  // Null when there are none, or another run has them.
  std::unique_ptr<ExecutionArguments> take() { return std::unique_ptr<ExecutionArguments>(kept_.exchange(nullptr)); }
  void give_back(std::unique_ptr<ExecutionArguments> arguments) { delete kept_.exchange(arguments.release()); }

 private:
  std::atomic<ExecutionArguments*> kept_{nullptr};
};

// Why oneDNN did not compute a call, in its words. None where it did.
using Failure = std::optional<std::string>;

// A primitive for one set of shapes and one number of threads, ready to run from any thread.
class Prepared {
 public:
  // What a primitive is handed at every call: scales and zero points, by oneDNN's argument numbers.
  using Constants = std::vector<std::pair<int, at::Tensor>>;

  Prepared(const dnnl::primitive_desc& desc, bool has_bias, Constants constants = {});

  // After a failure `dst` may hold anything.
  [[nodiscard]] Failure run(const at::Tensor& src, const BlockedWeight& weight, const at::Tensor& bias,
                            const at::Tensor& dst, const std::vector<at::Tensor>& operands) const;
  // The same with a weight that is laid out as the primitive was told.
  [[nodiscard]] Failure run(const at::Tensor& src, const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& dst, const std::vector<at::Tensor>& operands) const;

  const dnnl::memory::desc& weights_desc() const { return weights_; }
  // The mode that the primitive was made with, asked of the primitive itself.
  FP32MathMode math_mode() const;
  // oneDNN's name of the kernel: "brgconv:avx512_core".
  std::string kernel() const;

 private:
  void execute(const at::Tensor& src, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& dst,
               const std::vector<at::Tensor>& operands) const;

  dnnl::primitive primitive_;
  // In the order in which execute() fills them: source, weights, result, bias if any, operands, constants, scratchpad if
  // any.
  std::vector<std::pair<int, dnnl::memory::desc>> arguments_;
  dnnl::memory::desc weights_;
  bool has_bias_;
  Constants constants_;
  size_t scratchpad_size_;
  int pieces_;
  std::unique_ptr<SpareArguments> spare_ = std::make_unique<SpareArguments>();
};

}  // namespace ipex::runtime
