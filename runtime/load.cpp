#include <ipex/load.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/serialization/import.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "aot/file_layout.h"
#include "saved_by_ipex2.h"
#include "storage_records.h"

namespace ipex {
namespace {

bool is_packed_ahead_of_time(const std::string& path) {
  const std::string expected(runtime::magic_of_files);
  std::string begin(expected.size(), '\0');
  return std::ifstream(path, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size())) &&
         begin == expected;
}

std::string diagnose(const std::string& path, const std::string& message) {
  if (is_packed_ahead_of_time(path)) return "a file that ipex::aot_save wrote. Load it with ipex::aot_load";
  if (message.find("central directory") != std::string::npos || message.find("zip archive") != std::string::npos) {
    return "a file of " + std::to_string(std::filesystem::file_size(path)) +
           " bytes that is no complete archive. It is truncated or not TorchScript: save the model again";
  }
  return "an error: " + message + ". Save the model again with this version";
}

bool calls_functions(const torch::jit::Block& block) {
  return std::any_of(block.nodes().begin(), block.nodes().end(), [](const torch::jit::Node* node) {
    const auto inner = node->blocks();
    return node->kind() == c10::prim::CallMethod || node->kind() == c10::prim::CallFunction ||
           std::any_of(inner.begin(), inner.end(), [](const auto* b) { return calls_functions(*b); });
  });
}

}  // namespace

void cast_as_eager(const torch::jit::Module& module) {
  for (const auto& method : module.get_methods()) {
    auto& function = torch::jit::toGraphFunction(method.function());
    if (!calls_functions(*function.graph()->block())) function._set_ignore_amp(true);
  }
}

torch::jit::Module load(const std::string& path) {
  TORCH_CHECK(std::filesystem::is_regular_file(path), "ipex::load: expected a saved TorchScript model at '", path,
              "', got no such file. Check the path.");
  try {
    caffe2::serialize::PyTorchStreamReader file(path);
    runtime::check_storage_records(file);
    const bool is_of_ipex2 = runtime::prepare_for_ipex2(file);
    torch::jit::Module module = torch::jit::load(path, at::kCPU);
    if (is_of_ipex2) runtime::make_plain(module);
    runtime::check_tensors(module);
    cast_as_eager(module);
    return module;
  } catch (const std::exception& error) {
    const std::string message = runtime::line_of_torch(error);
    TORCH_CHECK(false, "ipex::load: expected a saved TorchScript model at '", path, "', got ", diagnose(path, message),
                ".");
  }
}

}  // namespace ipex
