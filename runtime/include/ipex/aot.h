// Files that hold a model with its weights packed: loading one packs nothing. docs/how_to/ahead_of_time.md
//
// The weights are mapped, not read: they come into memory as they are used, and processes that load the same file share
// them. The file holds the plain weights too. Where a packed one is of no use, it is packed again from these: on a CPU that
// wants another layout, or with another version of ipex.
#pragma once

#include <ipex/export.h>
#include <ipex/isa.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <string>
#include <vector>

namespace ipex {

struct AotSaveOptions {
  // The instructions to pack for, which must be those that this process uses: call isa::limit before. None: those.
  std::optional<isa::Level> isa;
  // Inputs of `forward`. It is called with each of these, so that what calls make of a weight is in the file as well: its
  // copy in bfloat16, or that for Winograd's algorithm. What is not in the file, the first call that wants it makes.
  std::vector<std::vector<c10::IValue>> example_inputs;
};

// Writes a module that jit_optimize has made. A file that is there already is replaced when the new one is whole: so
// processes that have loaded it keep what they have.
IPEX_API void aot_save(const torch::jit::Module& module, const std::string& path, const AotSaveOptions& options = {});

struct AotLoadOptions {
  // Packed weights are compared with their checksums before this returns. Otherwise each is at its first use: then no more
  // of the file is read than is used.
  bool check_at_load = true;
};

// Throws c10::Error where the file is missing, truncated or damaged, before anything of it is used. Warns where weights
// have to be packed again. While the module lives, the file must not be written to; it may be replaced or removed.
IPEX_API torch::jit::Module aot_load(const std::string& path, const AotLoadOptions& options = {});

// What a file says of itself.
struct AotFile {
  // Versions, and the instructions that the weights are packed for.
  std::string ipex, onednn, torch, level, onednn_isa;
  // How many there are, and their bytes.
  int64_t plain_weights, plain_bytes, packed_weights, packed_bytes;
  // Why weights would be packed again in this process. Empty where they would not.
  std::string packed_again;
};
IPEX_API AotFile aot_describe(const std::string& path);

}  // namespace ipex
