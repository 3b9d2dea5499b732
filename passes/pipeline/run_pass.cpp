#include <ipex/run_pass.h>
#include <torch/csrc/jit/ir/irparser.h>

#include <algorithm>

#include "ir/graph_walk.h"
#include "pipeline/dead_code.h"
#include "pipeline/pipeline.h"
#include "pipeline/verifier.h"

namespace ipex {

PassResult run_pass(const std::string& name, const std::string& ir, const Options& options) {
  const auto& passes = passes::pipeline();
  const auto pass = std::find_if(passes.begin(), passes.end(), [&](const passes::Pass& p) { return p.name == name; });
  TORCH_CHECK(pass != passes.end(), "ipex.run_pass: expected the name of a pass, got '", name,
              "'. `python -m ipex --passes` lists them.");
  const auto graph = std::make_shared<torch::jit::Graph>();
  torch::jit::parseIR(ir, graph.get(), /*parse_tensor_constants=*/true);
  // The parser leaves the values of tensors to chance.
  passes::for_each(graph, "prim::Constant", [](passes::Node* constant) {
    if (constant->hasAttribute(c10::attr::value) &&
        constant->kindOf(c10::attr::value) == torch::jit::AttributeKind::t) {
      constant->t(c10::attr::value).fill_(1);
    }
  });
  passes::Recorder recorder("forward");
  passes::Context context{graph, options, *pass, recorder};
  passes::Verifier verifier(graph, /*all_passes_run=*/true);
  PassResult result;
  result.changed = pass->run(context);
  result.report = recorder.report();
  verifier.check_nodes(*pass);
  passes::remove_dead_code(graph);
  graph->lint();
  verifier.check_invariants(*pass, result.changed);
  result.graph = graph->toString(/*print_source_locations=*/false);
  return result;
}

}  // namespace ipex
