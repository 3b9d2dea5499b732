// ipex._C: types cross the border here, nothing is decided.
#include <ipex/aot.h>
#include <ipex/intermediates.h>
#include <ipex/isa.h>
#include <ipex/isa_choice.h>
#include <ipex/jit_optimize.h>
#include <ipex/load.h>
#include <ipex/op_table.h>
#include <ipex/original_graph.h>
#include <ipex/pass_table.h>
#include <ipex/post_ops.h>
#include <ipex/region_times.h>
#include <ipex/run_pass.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>

#include "aot.h"
#include "memory.h"
#include "quick_call.h"
#include "stream_pool.h"
#include "warnings.h"

namespace py = pybind11;

namespace {

// The fields of ipex::Decision, in order.
using Row = std::tuple<std::string, std::string, bool, std::string, std::string, std::string, std::string, std::string>;

// The fields of ipex::QuantizedLinears, in order.
using QuantizedLinears = std::tuple<std::string, bool, int64_t, bool, bool, std::vector<std::string>>;

std::vector<Row> rows(const ipex::Report& report) {
  std::vector<Row> rows;
  for (const ipex::Decision& d : report) {
    rows.emplace_back(d.pass, d.node, d.applied, d.reason, d.method, d.name, d.module, d.into);
  }
  return rows;
}

// The dtype that Python calls torch.NAME.
at::ScalarType dtype_of(const std::string& name) {
  const auto& dtypes = c10::getStringToDtypeMap();
  const auto found = dtypes.find(name);
  TORCH_CHECK(found != dtypes.end(), "ipex.jit_optimize: expected the name of a dtype in dtype, got '", name,
              "'. Take bfloat16 or float16.");
  return found->second;
}

// observes, {key: (scale, zero point, factors)}, layers that stay in float, then flags: attention in int8, embeddings in int8,
// and layers in int8 on any CPU.
using Scale = std::tuple<double, int64_t, std::optional<at::Tensor>>;
using Quantization = std::tuple<bool, std::map<std::string, Scale>, std::vector<std::string>, bool, bool, bool>;

ipex::Quantization quantization_of(const Quantization& from) {
  const auto& [observes, scales, float_layers, attention, embeddings, forced] = from;
  ipex::Quantization quantization{observes, {}, float_layers, attention, embeddings, forced};
  for (const auto& [key, scale] : scales) {
    const auto& [step, zero_point, factors] = scale;
    quantization.scales[key] = {step, zero_point, factors.value_or(at::Tensor())};
  }
  return quantization;
}

}  // namespace

PYBIND11_MODULE(_C, m) {
  ipex::python::define_quick_call(m);
  ipex::python::define_layer_call(m);
  ipex::python::define_memory(m);
  ipex::python::define_stream_pool(m);
  m.def(
      "jit_optimize",
      [](const torch::jit::Module& module, std::vector<std::string> disable, const std::optional<std::string>& dtype,
         std::optional<int> fp32_math_mode, const std::optional<Quantization>& quantization,
         const std::optional<QuantizedLinears>& quantized_linears, std::string stop_after) {
        ipex::Options options;
        options.disable = std::move(disable);
        options.stop_after = std::move(stop_after);
        if (dtype) options.dtype = dtype_of(*dtype);
        if (fp32_math_mode) options.fp32_math_mode = static_cast<ipex::FP32MathMode>(*fp32_math_mode);
        if (quantization) options.quantization = quantization_of(*quantization);
        if (quantized_linears) {
          const auto& [format, rounds_inputs, group_size, symmetric, embeddings, float_layers] = *quantized_linears;
          options.quantized_linears = {format, rounds_inputs, group_size, symmetric, embeddings, float_layers};
        }
        return ipex::python::with_warnings([&] { return ipex::jit_optimize(module, options); });
      },
      py::arg("module"), py::kw_only(), py::arg("disable") = std::vector<std::string>{},
      py::arg("dtype") = std::nullopt, py::arg("fp32_math_mode") = std::nullopt, py::arg("quantization") = std::nullopt,
      py::arg("quantized_linears") = std::nullopt, py::arg("stop_after") = "");
  m.def(
      "set_fp32_math_mode", [](int mode) { return ipex::set_fp32_math_mode(static_cast<ipex::FP32MathMode>(mode)); },
      py::arg("mode"));
  m.def("get_fp32_math_mode", [] { return static_cast<int>(ipex::get_fp32_math_mode()); });
  m.def("load", &ipex::load, py::arg("path"), py::call_guard<py::gil_scoped_release>());
  ipex::python::define_aot(m);
  m.def("explain", [](const torch::jit::Module& module) { return rows(ipex::explain(module)); }, py::arg("module"));
  m.def(
      "original_graph",
      [](const torch::jit::Module& module) {
        py::list nodes;
        for (const ipex::OriginalNode& node : ipex::original_graph(module)) {
          nodes.append(
              py::make_tuple(node.kind, node.output, node.module, node.file, node.line, node.inputs, node.method));
        }
        return nodes;
      },
      py::arg("module"));
  m.def(
      "final_names",
      [](const torch::jit::Module& module) {
        py::list names;
        for (const ipex::FinalName& name : ipex::final_names(module)) {
          names.append(py::make_tuple(name.kind, name.output, name.module, name.method));
        }
        return names;
      },
      py::arg("module"));
  m.def(
      "intermediates",
      [](const torch::jit::Module& module, const py::tuple& inputs, bool sizes) {
        std::vector<c10::IValue> values;
        const auto& arguments = module.get_method("forward").function().getSchema().arguments();
        for (size_t i = 0; i < inputs.size() && i + 1 < arguments.size(); ++i) {
          values.push_back(torch::jit::toIValue(inputs[i], arguments[i + 1].type()));
        }
        std::vector<std::pair<std::string, c10::IValue>> recorded;
        {
          const py::gil_scoped_release released;
          recorded =
              ipex::intermediates(module, std::move(values), sizes ? ipex::Recorded::sizes : ipex::Recorded::values);
        }
        py::list named;
        for (auto& [name, value] : recorded) {
          named.append(py::make_tuple(name, torch::jit::toPyObject(std::move(value))));
        }
        return named;
      },
      py::arg("module"), py::arg("inputs"), py::arg("sizes"));
  m.def("pass_names", &ipex::pass_names);
  m.def("pass_table", [] {
    py::list rows;
    for (const ipex::PassFacts& pass : ipex::pass_table()) {
      py::dict row;
      row["phase"] = pass.phase;
      row["name"] = pass.name;
      row["needs"] = pass.needs;
      row["establishes"] = pass.establishes;
      row["breaks"] = pass.breaks;
      rows.append(row);
    }
    return rows;
  });
  m.def("invariant_table", [] {
    py::list rows;
    for (const ipex::InvariantFacts& one : ipex::invariant_table()) {
      rows.append(py::make_tuple(one.name, one.meaning, one.is_given));
    }
    return rows;
  });
  m.def("broken_invariants", &ipex::broken_invariants, py::arg("ir"));
  m.def("reason_against_order", &ipex::reason_against_order, py::arg("passes"));
  m.def("register_jit_passes", &ipex::register_jit_passes);
  m.def("unregister_jit_passes", &ipex::unregister_jit_passes);
  m.def(
      "run_pass",
      [](const std::string& name, const std::string& ir) {
        const ipex::PassResult result = ipex::run_pass(name, ir);
        return std::tuple(result.graph, result.changed, rows(result.report));
      },
      py::arg("name"), py::arg("ir"));

  m.def("op_table", [] {
    py::list rows;
    for (const ipex::OpFacts& op : ipex::op_table()) {
      py::dict row;
      row["name"] = op.name;
      row["overload"] = op.overload;
      row["memory"] = op.memory;
      row["writes"] = op.writes;
      row["left"] = op.left;
      rows.append(row);
    }
    return rows;
  });

  m.def("activation_patterns", [] {
    std::vector<std::tuple<std::string, std::string, bool>> all;
    for (const auto& [post_op, pattern, is_packed] : ipex::activation_patterns()) {
      all.emplace_back(post_op, pattern, is_packed);
    }
    return all;
  });

  m.def(
      "time_regions",
      [](const std::function<void()>& call) {
        const ipex::RegionTimes times = ipex::time_regions(call);
        return std::tuple(times.regions, times.within.count() * 1e-9, times.waiting.count() * 1e-9);
      },
      py::arg("call"));

  namespace isa = ipex::isa;
  m.def("isa_current", [] { return isa::name(isa::current()); });
  m.def("isa_highest_cpu", [] { return isa::name(isa::highest_cpu()); });
  m.def("isa_highest_binary", [] { return isa::name(isa::highest_binary()); });
  m.def("isa_optional_families", [] {
    std::vector<std::string> names;
    for (const isa::Level level : isa::optional_families()) names.emplace_back(isa::name(level));
    return names;
  });
  m.def("isa_onednn", &isa::onednn);
  m.def("isa_has", [](const std::string& level) { return isa::has(isa::level_of(level)); }, py::arg("level"));
  m.def("isa_limit", [](const std::string& level) { isa::limit(isa::level_of(level)); }, py::arg("level"));
  m.def("isa_has_fast_avx512_bf16", &isa::has_fast_avx512_bf16);
  m.def("isa_multiplies_pairs_fast", &isa::multiplies_pairs_fast, py::arg("features"), py::arg("asked"));
  m.def("isa_features", &isa::cpu_features);
  m.def(
      "isa_choose",
      [](std::vector<std::string> features, std::string aten, std::string onednn, std::optional<std::string> limit) {
        isa::Circumstances circumstances{std::move(features), std::move(aten), std::move(onednn), std::nullopt};
        if (limit) circumstances.limit = isa::level_of(*limit);
        const isa::Choice choice = isa::choose(circumstances);
        return std::tuple(isa::name(choice.level), choice.onednn, choice.onednn_limit);
      },
      py::arg("features"), py::arg("aten_cpu_capability"), py::arg("onednn_max_cpu_isa"), py::arg("limit"));
}
