// The module whose archive lies in a file with packed weights, with tensors that are the file's own memory.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>

#include "aot/stored_file.h"

namespace ipex::runtime {

// An archive in the form of torch.package, where a storage is a record of its own.
constexpr const char *module_in_archive = "0", *code_in_archive = ".data/ts_code/code/",
                     *pickles_in_archive = ".data/ts_code/0/", *storages_in_archive = ".data/";

// The storages of an archive at `offset` in a file, in order, without checksums.
std::vector<StoredTensor> tensors_of_archive(const char* archive, uint64_t bytes, uint64_t offset);

torch::jit::Module module_in(const std::shared_ptr<StoredFile>& file);

}  // namespace ipex::runtime
