// remove_idle_conversions: a conversion to what the tensor is already gives the tensor itself.
//
//   before   %a = aten::contiguous(%x, %format=0)    %b = aten::reshape(%a, %sizes)    %c = aten::contiguous(%b, %format=0)
//   after    %a = aten::contiguous(%x, %format=0)    %b = aten::reshape(%a, %sizes)    %c is %b
//   before   %a = aten::to(%x, %dtype, ..)    %b = aten::to(%a, %dtype, %copy=0, ..)
//   after    %a = aten::to(%x, %dtype, ..)    %b is %a
//
// In eager too it is the same tensor, not only an equal one, so it does not matter who writes to it later. Views of what
// is contiguous are contiguous. A reshape directly after another stays: the first one checks sizes, and raises.
// Declines when something may be overwritten between the two: strides change in place as well.
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool agree(const Node* a, const Node* b, const char* argument) {
  return is_same_argument(a->namedInput(argument), b->namedInput(argument));
}

bool is_contiguous_format(const Node* node) {
  return constant_integer(node->namedInput("memory_format")) == static_cast<int64_t>(at::MemoryFormat::Contiguous);
}

// The node after which the input of this aten::contiguous has the format that it asks for. Null when there is none.
const Node* made_contiguous_by(const Node* node) {
  const Node* source = node->input(0)->node();
  while (is_contiguous_format(node) && has_trait(source, trait::keeps_contiguous)) source = source->input(0)->node();
  return source->kind() == c10::aten::contiguous && agree(source, node, "memory_format") ? source : nullptr;
}

// The same for this aten::to and its dtype.
const Node* made_of_dtype_by(const Node* node) {
  static const OpName to_dtype("aten::to.dtype");
  const Node* source = node->input(0)->node();
  if (!to_dtype.is_of(source) || !agree(source, node, "dtype")) return nullptr;
  return is_false(node->namedInput("copy")) && node->namedInput("memory_format")->mustBeNone() ? source : nullptr;
}

bool run(Context& context) {
  bool changed = false;
  const auto remove = [&](Node* node, const Node* source) {
    if (!source || source->owningBlock() != node->owningBlock()) return;
    if (written_between(source, node)) return context.declined(node, "something is overwritten in between");
    context.merged(node, "does nothing after ", source);
    node->output()->replaceAllUsesWith(node->input(0));
    node->destroy();
    changed = true;
  };
  for_each(context.graph, "aten::contiguous", [&](Node* node) { remove(node, made_contiguous_by(node)); });
  for_each(context.graph, "aten::to.dtype", [&](Node* node) { remove(node, made_of_dtype_by(node)); });
  return changed;
}

}  // namespace

Pass remove_idle_conversions() { return {"remove_idle_conversions", run}; }

}  // namespace ipex::passes
