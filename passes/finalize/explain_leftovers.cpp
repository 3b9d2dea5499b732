// explain_leftovers: changes nothing; gives a reason for each node that could have been fast and is not.
//
// Runs last, on what is left: an earlier pass may have declined a node for a more particular reason as well.
#include <algorithm>
#include <unordered_map>

#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

// Arithmetic on sizes, which is no matter of tensors.
bool is_of_numbers(const Node* node) {
  return std::none_of(node->outputs().begin(), node->outputs().end(), has_tensor_type);
}

// What each op is to ipex: the reason that it is left where no pass had a more particular one.
const std::unordered_map<std::string, std::string>& reasons() {
  static const std::unordered_map<std::string, std::string> reasons = [] {
    std::unordered_map<std::string, std::string> all;
    const auto add = [&](const char* reason, std::initializer_list<const char*> ops) {
      for (const char* op : ops) all[std::string("aten::") + op] = std::string("left to aten: ") + reason;
    };
    add("no prepacked form", {"_convolution",
                              "_convolution_mode",
                              "convolution",
                              "conv1d",
                              "conv2d",
                              "conv3d",
                              "conv_transpose1d",
                              "conv_transpose2d",
                              "conv_transpose3d",
                              "conv_tbc",
                              "linear",
                              "addmm",
                              "matmul",
                              "bmm",
                              "baddbmm",
                              "addbmm",
                              "einsum",
                              "mm",
                              "mv",
                              "addmv",
                              "tensordot",
                              "rnn_tanh",
                              "rnn_relu",
                              "bilinear"});
    add("no packed op could take it",
        {"relu",     "relu_", "relu6",       "relu6_",       "leaky_relu",  "leaky_relu_",  "prelu",   "elu",
         "elu_",     "selu",  "selu_",       "celu",         "celu_",       "gelu",         "gelu_",   "silu",
         "silu_",    "mish",  "mish_",       "sigmoid",      "sigmoid_",    "hardsigmoid",  "tanh",    "tanh_",
         "exp",      "exp_",  "log",         "log_",         "sqrt",        "sqrt_",        "square",  "abs",
         "round",    "neg",   "hardswish",   "hardswish_",   "hardtanh",    "hardtanh_",    "clamp",   "clamp_",
         "softplus", "pow",   "clamp_min",   "clamp_max",    "add",         "add_",         "sub",     "sub_",
         "rsub",     "mul",   "mul_",        "div",          "div_",        "maximum",      "minimum", "where",
         "rsqrt",    "erf",   "masked_fill", "masked_fill_", "log_sigmoid", "hardsigmoid_", "mean",    "sum"});
    add("aten's own kernel is fused already", {"scaled_dot_product_attention"});
    add("its statistics can't be folded into a weight",
        {"batch_norm", "layer_norm", "native_layer_norm", "group_norm", "instance_norm", "rms_norm"});
    add("nothing to fuse it with", {"softmax",
                                    "_softmax",
                                    "log_softmax",
                                    "max_pool1d",
                                    "max_pool2d",
                                    "max_pool3d",
                                    "avg_pool1d",
                                    "avg_pool2d",
                                    "avg_pool3d",
                                    "adaptive_avg_pool1d",
                                    "adaptive_avg_pool2d",
                                    "adaptive_avg_pool3d",
                                    "adaptive_max_pool2d",
                                    "embedding",
                                    "cat",
                                    "constant_pad_nd",
                                    "pad",
                                    "upsample_nearest2d",
                                    "upsample_bilinear2d",
                                    "cumsum"});
    return all;
  }();
  return reasons;
}

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  for_each_node(graph->block(), [&](Node* node) {
    const auto found = reasons().find(kind_of(node));
    if (found == reasons().end() || is_of_numbers(node)) return;
    recorder.declined(node, found->second);
  });
  return false;
}

}  // namespace

Pass explain_leftovers() { return {"explain_leftovers", run}; }

}  // namespace ipex::passes
