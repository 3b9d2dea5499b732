#include <c10/util/StringUtil.h>
#include <ipex/aot.h>

#include "aot/module_in_file.h"
#include "aot/target.h"
#include "storage_records.h"

namespace ipex {

using runtime::StoredFile;

namespace {

// Why weights of the file are packed again.
std::string reason_to_pack_again(const runtime::FileLayout& layout) {
  if (layout.forms.empty()) return {};
  if (std::string reason = runtime::reason_against(layout.target); !reason.empty()) return reason;
  return runtime::difference_of_levels(layout.target);
}

}  // namespace

torch::jit::Module aot_load(const std::string& path, const AotLoadOptions& options) {
  const auto file =
      StoredFile::open(path, options.check_at_load ? StoredFile::Check::at_load : StoredFile::Check::at_first_use);
  const std::string reason = reason_to_pack_again(file->layout());
  if (!reason.empty()) {
    TORCH_WARN("ipex.aot_load: expected a file for this process, got '", path, "': ", reason,
               ". Weights that need another layout are packed again at the first call. Save the model for these "
               "instructions and versions.");
  }
  try {
    torch::jit::Module module = runtime::module_in(file);
    cast_as_eager(module);
    return module;
  } catch (const std::exception& error) {
    runtime::throw_damaged(path, "a module", "an error: " + runtime::line_of_torch(error));
  }
}

AotFile aot_describe(const std::string& path) {
  const runtime::MappedFile file("ipex::aot_describe", path);
  const runtime::FileLayout layout = runtime::read_layout(path, file.bytes());
  const runtime::Target& target = layout.target;
  const auto bytes = [](const auto& entries) {
    uint64_t sum = 0;
    for (const auto& entry : entries) sum += entry.piece.bytes;
    return static_cast<int64_t>(sum);
  };
  return {target.ipex,           target.onednn,
          target.torch,          target.level,
          target.onednn_isa,     static_cast<int64_t>(layout.tensors.size()),
          bytes(layout.tensors), static_cast<int64_t>(layout.forms.size()),
          bytes(layout.forms),   reason_to_pack_again(layout)};
}

}  // namespace ipex
