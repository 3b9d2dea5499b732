#include "ir/aliasing.h"

#include <algorithm>

#include "ir/constants.h"
#include "ir/flow.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/schemas.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

bool is_in_training(const Node* node) {
  for (const char* name : {"training", "use_input_stats"}) {
    if (node->hasNamedInput(name)) return !is_false(node->namedInput(name));
  }
  return true;
}

// Looks for a write to what a user is given. One that comes before `node`, if there is one, in its block is over.
class WriteAfter {
 public:
  explicit WriteAfter(const Node* node) : node_(node) {}

  bool is_made_by(const Use& use) {
    const Node* user = use.user;
    const Flow flow = flow_of(use);
    if (flow.is_lost) return true;
    const bool is_over = node_ && user->owningBlock() == node_->owningBlock() && user->isBefore(node_);
    const auto* schema = user->maybeSchema();
    if (!is_over && schema && use.offset < schema->arguments().size() &&
        writes_elements(schema->arguments()[use.offset])) {
      return true;
    }
    return std::any_of(flow.names.begin(), flow.names.end(), [&](const Value* name) { return reaches(name); });
  }

 private:
  // A value seen before has answered already.
  bool reaches(const Value* value) {
    return seen_.insert(value).second &&
           std::any_of(value->uses().begin(), value->uses().end(), [&](const Use& next) { return is_made_by(next); });
  }

  const Node* node_;
  std::unordered_set<const Value*> seen_;
};

// The tensor in whose memory this one lies: what it is a view of, or the same tensor before it was overwritten. Ops that
// change a tensor's shape may change its memory, too: set_.
const Value* base_of(const Value* value) {
  while (const Op* op = op_of(value->node())) {
    if ((op->memory != Memory::view && op->memory != Memory::itself) || op->writes == Writes::shape) break;
    value = value->node()->input(0);
  }
  return value;
}

// An einsum of one tensor may be a view of it. Of several it is a product.
bool multiplies_factors(const Node* node) {
  static const OpName einsum("aten::einsum");
  if (!einsum.is_of(node)) return false;
  const auto factors = elements_of(node->input(1));
  return factors && factors->size() > 1;
}

}  // namespace

bool is_fresh(const Value* value) {
  const Op* op = op_of(value->node());
  return op && (op->memory == Memory::fresh || multiplies_factors(value->node()));
}

bool is_in_fresh_memory(const Value* value) { return is_fresh(base_of(value)); }

bool may_write(const Node* node) {
  for (const Block* block : node->blocks()) {
    if (std::any_of(block->nodes().begin(), block->nodes().end(), may_write)) return true;
  }
  const Op* op = op_of(node);
  if (op && op->has(trait::carries)) return false;
  if (op && op->has(trait::writes_in_training)) return is_in_training(node);
  if (!op && !has_true_schema(node)) return true;
  const auto& arguments = node->schema().arguments();
  return std::any_of(arguments.begin(), arguments.end(), writes_elements);
}

bool may_write_to(const Node* node, const std::vector<Value*>& values) {
  if (!may_write(node)) return false;
  const Op* op = op_of(node);
  if (!op || !node->blocks().empty() || op->writes != Writes::elements || !is_in_fresh_memory(node->input(0)))
    return true;
  const OverwrittenValues overwritten(node);
  return std::any_of(values.begin(), values.end(), [&](const Value* value) { return overwritten.contain(value); });
}

bool overwrites_after(const Use& use, const Node* node) {
  // In a loop, what comes from outside of it is overwritten again.
  const bool is_of_block = use.user->input(use.offset)->node()->owningBlock() == node->owningBlock();
  return WriteAfter(is_of_block ? node : nullptr).is_made_by(use);
}

bool overwrites(const Use& use) { return WriteAfter(nullptr).is_made_by(use); }

bool is_overwritten_after(const Value* value, const Node* node) {
  const Value* base = base_of(value);
  return !is_fresh(base) || std::any_of(base->uses().begin(), base->uses().end(),
                                        [&](const Use& use) { return overwrites_after(use, node); });
}

bool writes_to_shared_memory(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each_node(graph->block(), [&](Node* node) {
    if (found || !node->blocks().empty() || !may_write(node)) return;
    const Op* op = op_of(node);
    // Only of what has a row is it known that nothing but the first input is written.
    found = !op || op->writes == Writes::nothing || !is_in_fresh_memory(node->input(0));
  });
  return found;
}

OverwrittenValues::OverwrittenValues(const std::shared_ptr<Graph>& graph)
    : everything_(writes_to_shared_memory(graph)) {
  if (everything_) return;
  for_each_node(graph->block(), [&](Node* node) {
    if (node->blocks().empty() && !node->inputs().empty() && may_write(node)) add(base_of(node->input(0)));
  });
}

OverwrittenValues::OverwrittenValues(const Node* write) { add(base_of(write->input(0))); }

void OverwrittenValues::add(const Value* value) {
  std::vector<const Value*> left{value};
  while (!left.empty()) {
    const Value* next = left.back();
    left.pop_back();
    if (!values_.insert(next).second) continue;
    for (const Use& use : next->uses()) {
      const Flow flow = flow_of(use);
      everything_ |= flow.is_lost;
      left.insert(left.end(), flow.names.begin(), flow.names.end());
    }
  }
}

bool reshapes_in_place(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each_node(graph->block(), [&](Node* node) {
    if (found || !node->blocks().empty() || !may_write(node)) return;
    const Op* op = op_of(node);
    found = !op || op->writes == Writes::shape;
  });
  return found;
}

bool must_be_a_tensor_of_its_own(const Value* value) {
  // A list whose readers compute something else of all that it holds.
  const auto is_joined = [](const Node* list) {
    if (!makes_list(list)) return false;
    const auto& uses = list->output()->uses();
    return std::all_of(uses.begin(), uses.end(), [](const Use& use) {
      const Op* op = op_of(use.user);
      return op && op->has(trait::joins) && op->memory == Memory::fresh;
    });
  };
  return std::any_of(value->uses().begin(), value->uses().end(), [&](const Use& use) {
    if (is_joined(use.user)) return false;
    const Op* op = op_of(use.user);
    if (!op || op->has(trait::carries) || op->writes == Writes::shape) return true;
    // As itself it may meet any of these further on.
    const auto outputs = use.user->outputs();
    const bool may_be_itself = op->memory == Memory::itself || op->memory == Memory::maybe_view;
    return op->memory == Memory::unknown ||
           (may_be_itself && std::any_of(outputs.begin(), outputs.end(), must_be_a_tensor_of_its_own));
  });
}

}  // namespace ipex::passes
