// Loading a saved optimised model. torch::jit::load works too; this one says what is wrong with a bad file.
#pragma once

#include <ipex/export.h>
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace ipex {

// Loads a TorchScript file onto the CPU. Throws c10::Error naming the file when it is missing, truncated, not
// TorchScript, or written by a newer ipex.
IPEX_API torch::jit::Module load(const std::string& path);

}  // namespace ipex
