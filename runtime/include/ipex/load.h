// Loading a saved optimised model. torch::jit::load works too; this one says what is wrong with a bad file.
#pragma once

#include <ipex/export.h>
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace ipex {

// Loads a TorchScript file onto the CPU. Throws c10::Error naming the file when it is missing, truncated, not
// TorchScript, or written by a newer ipex. A file that Intel Extension for PyTorch 2.x saved is a plain model again, with
// torch's ops and plain weights: give it to jit_optimize.
IPEX_API torch::jit::Module load(const std::string& path);

// Lets autocast give a model the dtypes that eager has. TorchScript writes casts of its own into a graph whose dtypes it
// doesn't know: sums are float32 then, and what reads them may get two dtypes. jit_optimize and load do this; call it
// after torch::jit::load where an optimised model runs under autocast. Methods that call others stay as they are:
// what they call has the casts.
IPEX_API void cast_as_eager(const torch::jit::Module& module);

}  // namespace ipex
