// Whether a saved model holds the numbers that it says it holds. torch.jit.load believes the file: where a record is
// shorter than the pickle says, or a tensor longer than its storage, reading the tensor reads somebody else's memory.
#pragma once

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>

#include <string>

namespace ipex::runtime {

// Before a module is loaded: throws c10::Error unless the record of each storage is as long as `pickle` says.
// `records` is what the names of their records begin with.
void check_storage_records(caffe2::serialize::PyTorchStreamReader& file, const std::string& pickle,
                           const std::string& records);

// After it: throws c10::Error unless each tensor, attribute or constant, lies within its storage.
void check_tensors(const torch::jit::Module& module);

}  // namespace ipex::runtime
