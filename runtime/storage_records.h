// Whether a saved model holds the numbers that it says it holds. torch.jit.load believes the file: where a record is
// shorter than the pickle says, or a tensor longer than its storage, reading the tensor reads somebody else's memory.
#pragma once

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>

#include <exception>
#include <string>

namespace ipex::runtime {

// Before a module is loaded, as loading it reads some of its tensors: throws c10::Error unless the record of each storage is
// as long as the pickles say, and each tensor in them lies within its storage. The names of those begin with `pickles`. The
// names of records begin with `records`; without, with that of their own pickle.
void check_storage_records(caffe2::serialize::PyTorchStreamReader& file, const std::string& pickles = "",
                           const std::string& records = "");

// What torch says of a file that it can't load, in one line. An error of ours, which says what to do, is thrown on as it is:
// to be called where `error` is caught.
std::string line_of_torch(const std::exception& error);

// After it: throws c10::Error unless each tensor, attribute or constant, lies within its storage.
void check_tensors(const torch::jit::Module& module);

}  // namespace ipex::runtime
