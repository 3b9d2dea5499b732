// Optimising a TorchScript module, from C++.
#pragma once

#include <ipex/export.h>
#include <ipex/math_mode.h>
#include <ipex/quantization.h>
#include <ipex/report.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <string>
#include <vector>

namespace ipex {

struct Options {
  // Passes to leave out, by name. `pass_names` lists them. "ipex::softmax" leaves that op to aten.
  std::vector<std::string> disable;
  // FP32 or BF32, to give the model a mode of its own, which is saved with it. Without, it follows the process.
  std::optional<FP32MathMode> fp32_math_mode;
  // bfloat16 or float16, to let the convolutions and linears of a float32 model compute in it. Inputs and results of the
  // model keep their dtype.
  std::optional<at::ScalarType> dtype;
  // To let layers compute in 8 bits, or to prepare the model for that.
  std::optional<Quantization> quantization;
  // To make integers of the weights of linears and recurrent layers, without data.
  std::optional<QuantizedLinears> quantized_linears;
  // The last phase to run, to see what it makes of a model; what it leaves is packed and runs. All of them where empty.
  std::string stop_after;
};

// Returns a new module that computes what `module` does, faster. `module` may be traced, scripted, frozen or loaded
// from a file, and must be in eval mode; it is not changed.
IPEX_API torch::jit::Module jit_optimize(const torch::jit::Module& module, const Options& options = {});

// Every pass that `Options::disable` accepts, in the order in which they run.
IPEX_API std::vector<std::string> pass_names();

// Makes every frozen module in the process go through the same passes, when TorchScript first compiles it. Off until
// called. Models compiled before are not touched, and the packed weights are held beside the plain ones: prefer
// jit_optimize where the model is at hand.
IPEX_API void register_jit_passes();

// The way back: models that TorchScript compiles from now on are left alone.
IPEX_API void unregister_jit_passes();

}  // namespace ipex
