#include "original_graph.h"

#include <algorithm>
#include <unordered_map>

#include "ir/graph_walk.h"
#include "ir/reading.h"
#include "ir/source_place.h"

namespace ipex {
namespace {

constexpr const char* original_attribute = "ipex_original_graph";
constexpr const char* final_attribute = "ipex_final_names";

// An OriginalNode as TorchScript can hold it; inputs are separated by spaces.
using SavedNode = std::tuple<std::string, std::string, std::string, std::string, int64_t, std::string, std::string>;

using SavedName = std::tuple<std::string, std::string, std::string, std::string>;

using passes::Node;
using passes::Value;

bool holds_tensors(const Value* value) {
  if (passes::has_tensor_type(value)) return true;
  const auto parts = value->type()->containedTypes();
  return std::any_of(parts.begin(), parts.end(),
                     [](const c10::TypePtr& part) { return part->isSubtypeOf(*c10::TensorType::get()); });
}

// What only hands tensors on, or makes none, is no node to a reader.
bool is_shown(const Node* node) {
  switch (node->kind()) {
    case c10::prim::Constant:
    case c10::prim::GetAttr:
    case c10::prim::ListConstruct:
    case c10::prim::ListUnpack:
    case c10::prim::TupleConstruct:
    case c10::prim::TupleUnpack:
    case c10::prim::NumToTensor:
      return false;
    default:
      return std::any_of(node->outputs().begin(), node->outputs().end(), holds_tensors);
  }
}

// Looks through nodes that are not shown.
void add_sources(const Value* value, std::vector<std::string>& sources) {
  const Node* node = value->node();
  if (node->kind() == c10::prim::Param || is_shown(node)) {
    const std::string name =
        node->outputs().empty() || node->kind() == c10::prim::Param ? value->debugName() : node->output(0)->debugName();
    if (std::find(sources.begin(), sources.end(), name) == sources.end()) sources.push_back(name);
  } else if (node->kind() != c10::prim::GetAttr && holds_tensors(value)) {
    for (const Value* input : node->inputs()) add_sources(input, sources);
  }
}

}  // namespace

namespace passes {

void name_tensors(Graph& graph) {
  for_each_node(graph.block(), [](Node* node) {
    for (Value* output : node->outputs()) {
      if (!output->hasDebugName() && holds_tensors(output)) output->setDebugName("v" + output->debugName());
    }
  });
}

std::vector<OriginalNode> nodes_of(Graph& graph, const std::string& method) {
  std::vector<OriginalNode> nodes;
  for_each_node(graph.block(), [&](const Node* node) {
    if (!is_shown(node)) return;
    const SourcePlace place = source_place(node);
    OriginalNode shown{kind_of(node), node->output(0)->debugName(), place.module, place.file, place.line, {}, method};
    for (const Value* input : node->inputs()) {
      if (holds_tensors(input)) add_sources(input, shown.inputs);
    }
    nodes.push_back(std::move(shown));
  });
  return nodes;
}

std::vector<FinalName> names_of(Graph& graph, const std::string& method) {
  std::vector<FinalName> names;
  for_each_node(graph.block(), [&](const Node* node) {
    if (!is_shown(node)) return;
    names.push_back({kind_of(node), node->output(0)->debugName(), source_place(node).module, method});
  });
  return names;
}

void attach(const std::vector<OriginalNode>& original, const std::vector<FinalName>& final,
            torch::jit::Module& module) {
  if (module.hasattr(original_attribute)) return;  // optimised a second time: the first graph was the user's
  c10::List<SavedNode> nodes;
  for (const OriginalNode& node : original) {
    std::string inputs;
    for (const std::string& input : node.inputs) inputs += (inputs.empty() ? "" : " ") + input;
    nodes.push_back({node.kind, node.output, node.module, node.file, node.line, inputs, node.method});
  }
  module.register_attribute(original_attribute, c10::getTypePtr<c10::List<SavedNode>>(), nodes);
  c10::List<SavedName> names;
  for (const FinalName& name : final) names.push_back({name.kind, name.output, name.module, name.method});
  module.register_attribute(final_attribute, c10::getTypePtr<c10::List<SavedName>>(), names);
}

}  // namespace passes

std::vector<OriginalNode> original_graph(const torch::jit::Module& module) {
  std::vector<OriginalNode> nodes;
  if (!module.hasattr(original_attribute)) return nodes;
  for (const c10::IValue& saved : module.attr(original_attribute).toListRef()) {
    const auto& fields = saved.toTupleRef().elements();
    OriginalNode node{fields[0].toStringRef(), fields[1].toStringRef(), fields[2].toStringRef(),
                      fields[3].toStringRef(), fields[4].toInt(),       {},
                      fields[6].toStringRef()};
    std::istringstream inputs = passes::reading(fields[5].toStringRef());
    for (std::string input; inputs >> input;) node.inputs.push_back(input);
    nodes.push_back(std::move(node));
  }
  return nodes;
}

std::vector<FinalName> final_names(const torch::jit::Module& module) {
  std::vector<FinalName> names;
  if (!module.hasattr(final_attribute)) return names;
  for (const c10::IValue& saved : module.attr(final_attribute).toListRef()) {
    const auto& fields = saved.toTupleRef().elements();
    names.push_back(
        {fields[0].toStringRef(), fields[1].toStringRef(), fields[2].toStringRef(), fields[3].toStringRef()});
  }
  return names;
}

}  // namespace ipex
