#include "aot.h"

#include <ipex/aot.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "warnings.h"

namespace py = pybind11;

namespace ipex::python {
namespace {

// The arguments of forward.
std::vector<c10::IValue> arguments_of(const torch::jit::Module& module, const py::tuple& inputs) {
  const auto& arguments = module.get_method("forward").function().getSchema().arguments();
  std::vector<c10::IValue> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(i + 1 < arguments.size(), "ipex.aot_save: expected at most ", arguments.size() - 1,
                " example inputs, as forward takes, got ", inputs.size(), ".");
    values.push_back(torch::jit::toIValue(inputs[i], arguments[i + 1].type()));
  }
  return values;
}

py::dict described(const std::string& path) {
  const AotFile file = aot_describe(path);
  return py::dict(py::arg("ipex") = file.ipex, py::arg("onednn") = file.onednn, py::arg("torch") = file.torch,
                  py::arg("isa") = file.level, py::arg("onednn_isa") = file.onednn_isa,
                  py::arg("plain_weights") = file.plain_weights, py::arg("plain_bytes") = file.plain_bytes,
                  py::arg("packed_weights") = file.packed_weights, py::arg("packed_bytes") = file.packed_bytes,
                  py::arg("packed_again") = file.packed_again);
}

}  // namespace

void define_aot(py::module_& m) {
  m.def(
      "aot_save",
      [](const torch::jit::Module& module, const std::string& path, const std::vector<py::tuple>& example_inputs) {
        AotSaveOptions options;
        for (const py::tuple& inputs : example_inputs) options.example_inputs.push_back(arguments_of(module, inputs));
        with_warnings([&] {
          aot_save(module, path, options);
          return true;
        });
      },
      py::arg("module"), py::arg("path"), py::arg("example_inputs"));
  m.def(
      "aot_load",
      [](const std::string& path, bool check_at_load) {
        return with_warnings([&] { return aot_load(path, {check_at_load}); });
      },
      py::arg("path"), py::arg("check_at_load"));
  m.def("aot_describe", &described, py::arg("path"));
}

}  // namespace ipex::python
