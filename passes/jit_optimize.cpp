#include <ipex/jit_optimize.h>
#include <ipex/load.h>

#include <ATen/autocast_mode.h>

#include <array>

#include "call_stacks.h"
#include "frontend.h"
#include "original_graph.h"
#include "pack/keep_scalar_tensors.h"
#include "pack/own_weights.h"
#include "pack/pack_weights.h"
#include "pipeline/pipeline.h"

namespace ipex {
namespace {

constexpr const char* report_attribute = "ipex_report";

// A Decision as TorchScript can hold it: its fields, in order.
using SavedDecision =
    std::tuple<std::string, std::string, bool, std::string, std::string, std::string, std::string, std::string>;

Decision decision_of(const c10::IValue& saved) {
  const auto& fields = saved.toTupleRef().elements();
  Decision decision{fields[0].toStringRef(), fields[1].toStringRef(), fields[2].toBool(), fields[3].toStringRef(),
                    "forward"};
  // Models saved by earlier versions have fewer.
  size_t next = 4;
  for (std::string* field : {&decision.method, &decision.name, &decision.module, &decision.into}) {
    if (next < fields.size()) *field = fields[next++].toStringRef();
  }
  return decision;
}

// Where autocast is on, freezing writes casts into the graph, and constants are computed in 16 bits. What a model becomes
// must not depend on where it is optimised.
class WithoutAutocast {
 public:
  WithoutAutocast() {
    for (size_t i = 0; i < devices.size(); ++i) {
      before_[i] = at::autocast::is_autocast_enabled(devices[i]);
      at::autocast::set_autocast_enabled(devices[i], false);
    }
  }
  ~WithoutAutocast() {
    for (size_t i = 0; i < devices.size(); ++i) at::autocast::set_autocast_enabled(devices[i], before_[i]);
  }
  WithoutAutocast(const WithoutAutocast&) = delete;

 private:
  static constexpr std::array devices{at::kCPU, at::kCUDA};
  std::array<bool, 2> before_{};
};

void attach(const Report& report, torch::jit::Module& module) {
  // A module optimised a second time has one already: what happened first is what matters.
  if (module.hasattr(report_attribute)) return;
  c10::List<SavedDecision> saved;
  for (const Decision& d : report) {
    saved.push_back({d.pass, d.node, d.applied, d.reason, d.method, d.name, d.module, d.into});
  }
  module.register_attribute(report_attribute, c10::getTypePtr<c10::List<SavedDecision>>(), saved);
}

}  // namespace

torch::jit::Module jit_optimize(const torch::jit::Module& module, const Options& options) {
  const auto mode = options.fp32_math_mode;
  TORCH_CHECK(!mode || *mode == FP32MathMode::FP32 || *mode == FP32MathMode::BF32,
              "ipex.jit_optimize: expected FP32 or BF32 in fp32_math_mode, got ", to_string(*mode),
              ". CPUs have no other.");
  const auto dtype = options.dtype;
  TORCH_CHECK(!dtype || *dtype == at::kBFloat16 || *dtype == at::kHalf,
              "ipex.jit_optimize: expected bfloat16 or float16 in dtype, got ", c10::toString(*dtype),
              ". Without one, a model keeps its own.");
  const WithoutAutocast guard;
  const passes::ScalarTensors scalars(module);
  torch::jit::Module optimized = passes::frozen_copy(module);
  const passes::Unfinished unfinished(optimized);
  Report report;
  std::vector<OriginalNode> original;
  std::vector<FinalName> final;
  for (const auto& method : optimized.get_methods()) {
    const auto graph = method.graph();
    passes::hold_functions(*graph, method.function());
    passes::name_tensors(*graph);
    const std::vector<OriginalNode> given = passes::nodes_of(*graph, method.name());
    original.insert(original.end(), given.begin(), given.end());
    scalars.keep_deciding(graph, optimized);
    const Report own = passes::optimize(graph, method.name(), options);
    report.insert(report.end(), own.begin(), own.end());
    passes::pack_into_attributes(graph, optimized);
    scalars.keep(graph, optimized);
    const std::vector<FinalName> names = passes::names_of(*graph, method.name());
    final.insert(final.end(), names.begin(), names.end());
  }
  passes::own_weights(optimized, module);
  attach(report, optimized);
  passes::attach(original, final, optimized);
  cast_as_eager(optimized);
  return optimized;
}

Report explain(const torch::jit::Module& module) {
  TORCH_CHECK(
      module.hasattr(report_attribute),
      "ipex.explain: expected a module that ipex.jit_optimize returned, got one without a report. Optimise it first.");
  Report report;
  for (const c10::IValue& saved : module.attr(report_attribute).toListRef()) report.push_back(decision_of(saved));
  return report;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const passes::Pass& pass : passes::pipeline()) names.push_back(pass.name);
  return names;
}

}  // namespace ipex
