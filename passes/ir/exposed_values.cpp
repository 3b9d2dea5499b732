#include "ir/exposed_values.h"

#include <algorithm>

#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "ir/schemas.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

// Whether somebody who has it can change it: a tensor, a list, an object.
bool is_changeable(const c10::TypePtr& type) {
  switch (type->kind()) {
    case c10::TypeKind::OptionalType:
    case c10::TypeKind::TupleType: {
      const auto parts = type->containedTypes();
      return std::any_of(parts.begin(), parts.end(), is_changeable);
    }
    case c10::TypeKind::NumberType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
      return false;
    default:
      return true;
  }
}

bool is_module(const Value* value) {
  const auto type = value->type()->cast<c10::ClassType>();
  return type && type->is_module();
}

bool is_tensor(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::TensorType::get()) || type->isSubtypeOf(*c10::OptionalType::ofTensor());
}

// Whether the schema of its op does. What has none hands on what it is given, which torch knows.
bool says_that_it_aliases(const Value* value) {
  const auto* schema = value->node()->maybeSchema();
  return !schema || (value->offset() < schema->returns().size() && schema->returns()[value->offset()].alias_info());
}

}  // namespace

std::shared_ptr<Graph> graph_inside(const Node* node) {
  return node->hasAttribute(c10::attr::Subgraph) ? node->g(c10::attr::Subgraph) : nullptr;
}

ExposedValues::ExposedValues(const std::vector<Graph*>& graphs) {
  for (Graph* graph : graphs) {
    for_each_node(graph->block(), [&](Node* node) {
      if (node->kind() == c10::prim::SetAttr) stored_[Symbol::attr(node->s(c10::attr::name))].push_back(node->input(1));
    });
  }
  for (Graph* graph : graphs) {
    for (const Value* result : graph->outputs()) add(result, Seen::no);
    for_each_node(graph->block(), [&](Node* node) { look_for_writes(node); });
  }
  while (!left_.empty()) {
    const auto [value, seen] = left_.back();
    left_.pop_back();
    add_sources(value, seen);
  }
}

void ExposedValues::look_for_writes(Node* node) {
  if (node->kind() == c10::prim::SetAttr) return add(node->input(1), Seen::no);
  const Op* op = op_of(node);
  if (op && op->has(trait::carries)) return;
  if (op && op->writes != Writes::nothing) add(node->input(0), Seen::yes);
  if (op && op->has(trait::writes_in_training) && may_write(node)) add_inputs(node, Seen::no);
  const auto* schema = node->maybeSchema();
  if (!op && (!schema || !has_true_schema(node))) return add_inputs(node, Seen::no);
  if (!schema) return;
  const auto& arguments = schema->arguments();
  for (size_t i = 0; i < std::min(arguments.size(), node->inputs().size()); ++i) {
    if (!writes_argument(node, i) && !writes_elements(arguments[i])) continue;
    add(node->input(i), Seen::yes);
    if (!is_tensor(arguments[i].type())) add_inputs(node, Seen::no);  // a list may keep what stands beside it
  }
}

void ExposedValues::add(const Value* value, Seen seen) {
  if (!is_changeable(value->type())) return;
  const bool is_new = values_.insert(value).second;
  const bool is_unseen_now = seen == Seen::no && unseen_.insert(value).second;
  if (is_new || is_unseen_now) left_.emplace_back(value, seen);
}

void ExposedValues::add_inputs(const Node* node, Seen seen) {
  // What a call does to the module that it belongs to is seen in the graph of what it calls.
  for (const Value* input : node->inputs()) {
    if (!is_module(input) && input->type()->kind() != c10::TypeKind::InterfaceType) add(input, seen);
  }
}

void ExposedValues::add_sources(const Value* value, Seen seen) {
  const Node* node = value->node();
  if (node->kind() == c10::prim::Param) return add_sources_of_argument(value, seen);
  if (node->kind() == c10::prim::GetAttr) {
    const auto stored = stored_.find(Symbol::attr(node->s(c10::attr::name)));
    if (stored == stored_.end()) return;
    for (const Value* source : stored->second) add(source, Seen::no);
    return;
  }
  const bool is_loop = node->kind() == c10::prim::Loop;
  for (const Block* block :
       node->blocks()) {  // an If gives what its blocks give, a Loop's block gives a condition first
    if (node->kind() == c10::prim::If || is_loop) add(block->outputs().at(value->offset() + (is_loop ? 1 : 0)), seen);
  }
  if (node->kind() == c10::prim::If) return;
  if (is_loop) return add(node->input(value->offset() + 2), seen);
  const Op* op = op_of(node);
  if (is_fresh(value) || (op && op->memory == Memory::no_tensor && !op->has(trait::carries))) return;
  if (!says_that_it_aliases(value)) seen = Seen::no;
  const bool is_first = op && (op->memory == Memory::view || op->memory == Memory::itself);
  if (is_first) return add(node->input(0), seen);
  add_inputs(node, seen);
}

// What the body of a loop is given: what comes into the loop, and what the body gave the round before.
void ExposedValues::add_sources_of_argument(const Value* value, Seen seen) {
  const Block* block = value->node()->owningBlock();
  const Node* owner = block->owningNode();
  if (!owner || owner->kind() != c10::prim::Loop || value->offset() == 0) return;
  add(owner->input(value->offset() + 1), seen);
  add(block->outputs().at(value->offset()), seen);
}

}  // namespace ipex::passes
