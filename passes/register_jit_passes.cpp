// The same pipeline as a pass of TorchScript's own executor.
//
// The executor runs such passes on its copy of a graph, after a profiling run, whoever the graph belongs to. Those of
// functions and of modules that are not frozen, whose weights somebody may still train, are left as they are.
#include <ipex/jit_optimize.h>
#include <torch/csrc/jit/passes/pass_manager.h>

#include <mutex>
#include <optional>

#include "ir/graph_walk.h"
#include "pack/pack_weights.h"
#include "pipeline/pipeline.h"

namespace ipex {
namespace {

using passes::Graph;
using passes::Node;

std::mutex mutex;
std::optional<torch::jit::GraphPassNameType> registered;

// Profiling leaves a node on every value, which would split each pattern in two.
void strip_profile_nodes(const std::shared_ptr<Graph>& graph) {
  passes::for_each_node(graph->block(), [](Node* node) {
    if (node->kind() != c10::prim::profile) return;
    for (size_t i = 0; i < node->outputs().size(); ++i) node->output(i)->replaceAllUsesWith(node->input(i));
    node->destroy();
  });
}

// Freezing takes the attribute `training` away.
bool is_of_frozen_module(const Graph& graph) {
  if (graph.inputs().empty()) return false;
  const auto self = graph.inputs()[0]->type()->cast<c10::ClassType>();
  return self && self->is_module() && !self->hasAttribute("training");
}

void run(std::shared_ptr<Graph>& graph) {
  if (!is_of_frozen_module(*graph)) return;
  // On a copy: whatever goes wrong here, the user's model runs as it is.
  const std::shared_ptr<Graph> optimized = graph->copy();
  try {
    strip_profile_nodes(optimized);
    passes::optimize(optimized, "forward", {});
    passes::pack_into_constants(optimized);
  } catch (const std::exception& error) {
    TORCH_WARN(
        "ipex.register_jit_passes: expected to optimise a frozen module, got an error; the module runs as it is. ",
        error.what());
    return;
  }
  graph = optimized;
}

}  // namespace

void register_jit_passes() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!registered) registered = torch::jit::registerPrePass(run);
}

void unregister_jit_passes() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (registered) torch::jit::clearPrePass(*registered);
  registered.reset();
}

}  // namespace ipex
