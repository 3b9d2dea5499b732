// TorchScript files that Intel Extension for PyTorch (IPEX) 2.x saved. They call ops of its own, `torch_ipex::..`, and
// hold weights in its classes, `ipex_prepack.*Context`, which nobody maintains. Here both become what they were made
// of: torch's ops and plain weights. Codes of weight-only linears stay codes, of an op of ours.
#pragma once

#include <caffe2/serialize/inline_container.h>
#include <torch/csrc/jit/api/module.h>

namespace ipex::runtime {

// Before a module is loaded: whether IPEX 2.x saved it. If so, TorchScript knows IPEX's classes and ops from here on, and
// IPEX itself can't be imported any more. Where it already is, the file is left to it: false. Throws c10::Error if it
// calls ops of IPEX that have no row here.
bool prepare_for_ipex2(caffe2::serialize::PyTorchStreamReader& file);

// After it: makes the module plain. Throws c10::Error where it uses a context in another way than IPEX wrote it.
void make_plain(const torch::jit::Module& module);

}  // namespace ipex::runtime
