// ipex._C: types cross the border here, nothing is decided.
#include <ipex/jit_optimize.h>
#include <ipex/load.h>
#include <ipex/run_pass.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace {

using Row = std::tuple<std::string, std::string, bool, std::string>;

std::vector<Row> rows(const ipex::Report& report) {
  std::vector<Row> rows;
  for (const ipex::Decision& d : report) rows.emplace_back(d.pass, d.node, d.applied, d.reason);
  return rows;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  m.def(
      "jit_optimize",
      [](const torch::jit::Module& module, std::vector<std::string> disable) {
        return ipex::jit_optimize(module, {std::move(disable)});
      },
      py::arg("module"), py::arg("disable"), py::call_guard<py::gil_scoped_release>());
  m.def("load", &ipex::load, py::arg("path"), py::call_guard<py::gil_scoped_release>());
  m.def("explain", [](const torch::jit::Module& module) { return rows(ipex::explain(module)); }, py::arg("module"));
  m.def("pass_names", &ipex::pass_names);
  m.def("register_jit_passes", &ipex::register_jit_passes);
  m.def("unregister_jit_passes", &ipex::unregister_jit_passes);
  m.def(
      "run_pass",
      [](const std::string& name, const std::string& ir) {
        const ipex::PassResult result = ipex::run_pass(name, ir);
        return std::tuple(result.graph, result.changed, rows(result.report));
      },
      py::arg("name"), py::arg("ir"));
}
