#include "aliasing.h"

#include <algorithm>
#include <unordered_set>

#include "graph_walk.h"

namespace ipex::passes {
namespace {

// Nodes without a schema that only compute or carry values.
bool is_harmless_primitive(const Node* node) {
  static const std::unordered_set<std::string> kinds{
      "prim::Constant",       "prim::GetAttr",        "prim::If",
      "prim::Loop",           "prim::ListConstruct",  "prim::TupleConstruct",
      "prim::ListUnpack",     "prim::TupleUnpack",    "prim::TupleIndex",
      "prim::DictConstruct",  "prim::unchecked_cast", "prim::Uninitialized",
      "prim::RaiseException", "prim::SetAttr"};
  return kinds.count(kind_of(node)) > 0;
}

// Lists and dicts are written to as well, but the memory of the tensors in them is not.
bool is_overwritten_argument(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite() &&
         argument.type()->isSubtypeOf(*c10::TensorType::get());
}

}  // namespace

bool is_fresh(const Value* value) {
  static const std::unordered_set<std::string> kinds{"ipex::convolution_run",
                                                     "ipex::convolution_chain_run",
                                                     "ipex::linear_run",
                                                     "ipex::linear_chain_run",
                                                     "ipex::matmul_run",
                                                     "ipex::lstm_run",
                                                     "ipex::gru_run",
                                                     "ipex::batch_norm",
                                                     "ipex::cat_batch_norm",
                                                     "ipex::softmax",
                                                     "aten::conv2d",
                                                     "aten::_convolution",
                                                     "aten::linear",
                                                     "aten::batch_norm",
                                                     "aten::add",
                                                     "aten::sub",
                                                     "aten::mul",
                                                     "aten::div",
                                                     "aten::relu",
                                                     "aten::neg",
                                                     "aten::addmm",
                                                     "aten::max_pool2d",
                                                     "aten::cat",
                                                     "aten::layer_norm",
                                                     "aten::matmul",
                                                     "aten::sigmoid",
                                                     "aten::avg_pool2d",
                                                     "aten::conv3d",
                                                     "aten::conv1d",
                                                     "aten::adaptive_avg_pool2d",
                                                     "aten::tanh",
                                                     "aten::erf",
                                                     "aten::pow",
                                                     "aten::rsqrt",
                                                     "aten::bmm",
                                                     "aten::baddbmm",
                                                     "aten::softmax",
                                                     "aten::softplus"};
  return kinds.count(kind_of(value->node())) > 0;
}

bool may_write(const Node* node) {
  for (const Block* block : node->blocks()) {
    if (std::any_of(block->nodes().begin(), block->nodes().end(), may_write)) return true;
  }
  const auto* schema = node->maybeSchema();
  if (!schema) return !is_harmless_primitive(node);
  return std::any_of(schema->arguments().begin(), schema->arguments().end(), is_overwritten_argument);
}

bool overwrites(const Use& use) {
  const auto* schema = use.user->maybeSchema();
  if (!schema || use.offset >= schema->arguments().size()) return false;
  const c10::Argument& argument = schema->arguments()[use.offset];
  if (!argument.alias_info()) return false;
  if (is_overwritten_argument(argument)) return true;
  return std::any_of(use.user->outputs().begin(), use.user->outputs().end(), [](const Value* view) {
    return std::any_of(view->uses().begin(), view->uses().end(), overwrites);
  });
}

bool written_between(const Node* first, const Node* second) {
  for (const Node* between = first->next(); between != second; between = between->next()) {
    if (may_write(between)) return true;
  }
  return false;
}

bool writes_to_shared_memory(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each_node(graph->block(), [&](Node* node) {
    found |= node->blocks().empty() && may_write(node) && !(node->inputs().size() > 0 && is_fresh(node->input(0)));
  });
  return found;
}

}  // namespace ipex::passes
