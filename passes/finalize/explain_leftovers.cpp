// explain_leftovers: changes nothing; gives a reason for each node that could have been fast and is not.
//
// Runs last. Anchors and activations that an earlier pass looked at have their reason already; the rest is what no pass
// knows.
#include <unordered_set>

#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

const std::unordered_set<std::string> unpacked_anchors{"aten::_convolution",
                                                       "aten::_convolution_mode",
                                                       "aten::conv2d",
                                                       "aten::conv1d",
                                                       "aten::conv3d",
                                                       "aten::conv_transpose1d",
                                                       "aten::conv_transpose2d",
                                                       "aten::conv_transpose3d",
                                                       "aten::addmm",
                                                       "aten::matmul",
                                                       "aten::bmm",
                                                       "aten::baddbmm",
                                                       "aten::einsum",
                                                       "aten::lstm",
                                                       "aten::gru",
                                                       "aten::mm",
                                                       "aten::addmv",
                                                       "aten::embedding_bag"};

const std::unordered_set<std::string> activations{
    "aten::relu",       "aten::relu_",       "aten::relu6",     "aten::leaky_relu", "aten::prelu",
    "aten::elu",        "aten::gelu",        "aten::silu",      "aten::silu_",      "aten::mish",
    "aten::sigmoid",    "aten::hardsigmoid", "aten::tanh",      "aten::softmax",    "aten::hardswish",
    "aten::hardswish_", "aten::hardtanh",    "aten::hardtanh_", "aten::clamp",      "aten::softplus"};

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  for_each_node(graph->block(), [&](Node* node) {
    const std::string kind = node->kind().toQualString();
    if (unpacked_anchors.count(kind)) recorder.declined(node, "left to aten: no prepacked form yet");
    if (activations.count(kind)) recorder.declined(node, "left to aten: no packed op could take it");
  });
  return false;
}

}  // namespace

Pass explain_leftovers() { return {"explain_leftovers", run}; }

}  // namespace ipex::passes
