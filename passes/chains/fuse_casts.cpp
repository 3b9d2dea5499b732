// fuse_casts: the casts around elementwise ops and norms between layers of 16 bits are part of their pass over memory.
//
//   before   %a = ipex::restore_precision(%x)
//            %y = ipex::elementwise([%a, %g], ["mul 0 1"])
//            %l = ipex::lower_precision(%y, %dtype)
//   after    %l = ipex::elementwise([%x, %g], ["mul 0 1"], %restored=[True, False], %dtype)
//
//   before   %a = ipex::restore_precision(%x)    %y = ipex::layer_norm(%a, ..)    %l = ipex::lower_precision(%y, %dtype)
//   after    %l = ipex::layer_norm(%x, .., %dtype)
//
// Both compute in float32, as before: numbers of 16 bits are read and written, and no float32 copy lies in between. A norm of a
// sum reads what it did before. Where others read a result in float32 too, only what is read is cast.
//
// Declines where something is overwritten between a cast and the op.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "chains/elementwise_casts.h"
#include "chains/elementwise_ports.h"
#include "ir/calls.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// The dtype to which everybody casts what the op gives: its result, or the pieces of its list.
std::optional<at::ScalarType> dtype_of_readers(const std::vector<Value*>& results) {
  std::optional<at::ScalarType> common;
  for (const Value* result : results) {
    const auto own = dtype_of_all_readers(result);
    if (!own || own != common.value_or(*own)) return std::nullopt;
    common = own;
  }
  return common;
}

// The inputs of the list, some of which may be casts that wait for the op.
bool read_without_casts(Node* elementwise) {
  std::vector<Value*> inputs = elementwise->input(0)->node()->inputs().vec();
  c10::List<bool> restored = torch::jit::toIValue(elementwise->namedInput("restored"))->toBoolList().copy();
  restored.resize(inputs.size());
  bool restores = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Node* cast = restoring_cast(inputs[i]);
    if (!cast || !can_wait(cast, elementwise)) continue;
    inputs[i] = without_cast(inputs[i]);
    restored[i] = true;
    restores = true;
  }
  if (!restores) return false;
  give_inputs(elementwise, inputs);
  set_argument(elementwise, "restored", restored);
  return true;
}

// What a norm reads has its own dtype where its result has one.
bool read_without_cast(Node* norm, bool is_lowered) {
  const Node* cast = has_argument(norm, "x") ? restoring_cast(norm->input(0)) : nullptr;
  if (!cast || !can_wait(cast, norm)) return false;
  norm->replaceInput(0, without_cast(norm->input(0)));
  if (!is_lowered) set_argument(norm, "dtype", at::kFloat);
  return true;
}

bool fuse(Context& context, Node* node) {
  if (!node->namedInput("dtype")->mustBeNone()) return false;  // it has been here
  const std::vector<Value*> results = results_of(node);
  const auto lowered_to = dtype_of_readers(results);
  const bool restores = has_port(node, "restored") ? read_without_casts(node) : read_without_cast(node, !!lowered_to);
  if (!restores && !lowered_to) return false;
  context.applied(node, "casts in the same pass over memory");
  if (lowered_to) {
    set_argument(node, "dtype", *lowered_to);
    for (Value* result : results) remove_casts_of(result);
  }
  return true;
}

bool run(Context& context) {
  std::vector<Node*> nodes;  // a cast that is removed may be the next one
  for_each_node(context.graph->block(), [&](Node* node) {
    if (has_port(node, "dtype")) nodes.push_back(node);
  });
  bool changed = false;
  for (Node* node : nodes) changed |= fuse(context, node);
  return changed;
}

}  // namespace

Pass fuse_casts() { return {"fuse_casts", run}; }

}  // namespace ipex::passes
