// remove_in_place_activations: an activation that overwrites its input becomes one that doesn't, where nobody can tell.
//
//   before   %z = aten::relu_(%y)
//   after    %z = aten::relu(%y)      and later readers of %y read %z
//
// Declines when %y may be seen by somebody who would miss the write: a view, a graph input, a graph output, or memory
// that is not known to be %y's own (aliasing.h). And when no packed op could take the activation over: in place it costs
// no memory, and TorchScript's gradients of an activation in place and of another are not always the same.
// Only ops that keep dtype and shape are listed; add_ does not (its result has the dtype of its first operand, add's is
// promoted), so it stays, and is fused as what it is.
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <unordered_set>

#include "aliasing.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

// Whether %y is computed by an op that will be packed, or by arithmetic, pools and the like on such values.
class FollowsAnchor {
 public:
  bool operator()(const Value* value) {
    static const std::unordered_set<std::string> anchors{"aten::conv1d",
                                                         "aten::conv2d",
                                                         "aten::conv3d",
                                                         "aten::conv_transpose1d",
                                                         "aten::conv_transpose2d",
                                                         "aten::conv_transpose3d",
                                                         "aten::linear",
                                                         "aten::_convolution",
                                                         "aten::addmm",
                                                         "aten::matmul",
                                                         "aten::mm",
                                                         "aten::bmm",
                                                         "aten::baddbmm",
                                                         "aten::einsum",
                                                         "aten::lstm",
                                                         "aten::gru"};
    static const std::unordered_set<std::string> followers{
        "aten::add",        "aten::sub",     "aten::mul",        "aten::div",        "aten::add_",
        "aten::sub_",       "aten::mul_",    "aten::div_",       "aten::batch_norm", "aten::dropout",
        "aten::relu",       "aten::relu_",   "aten::max_pool2d", "aten::avg_pool2d", "aten::adaptive_avg_pool2d",
        "aten::max_pool3d", "aten::sigmoid", "aten::cat",        "aten::maximum",    "prim::ListConstruct"};
    const std::string kind = kind_of(value->node());
    if (anchors.count(kind)) return true;
    if (!followers.count(kind) || !seen_.insert(value).second) return false;
    const auto inputs = value->node()->inputs();
    return std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) { return (*this)(input); });
  }

 private:
  std::unordered_set<const Value*> seen_;
};

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  const Symbol relu_ = Symbol::fromQualString("aten::relu_");
  const bool changed = torch::jit::RemoveTensorMutation(graph, [&](Node* node) {
    return node->kind() == relu_ && is_fresh(node->input(0)) && FollowsAnchor()(node->input(0));
  });
  for_each(graph, "aten::relu_", [&](Node* node) {
    recorder.declined(node, FollowsAnchor()(node->input(0)) ? "what it overwrites may be read elsewhere"
                                                            : "no packed op comes before it");
  });
  return changed;
}

}  // namespace

Pass remove_in_place_activations() { return {"remove_in_place_activations", run}; }

}  // namespace ipex::passes
