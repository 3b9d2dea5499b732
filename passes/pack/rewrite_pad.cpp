// rewrite_pad: what may be padded by nothing, as images are that windows should fit, is copied where something is padded only.
//
//   before   %y = aten::pad(%x, %pads, %mode, %value)
//   after    %y = ipex::pad(%x, %pads, %mode, %value, %may_be_input)
//
// and aten::constant_pad_nd with a constant. The result may be %x itself where nobody overwrites either, and neither it nor a view of it leaves
// the graph.
#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/pads.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Whether a list of tensors is read by ops that copy what they join.
bool is_only_joined(const Value* list) {
  const auto& uses = list->uses();
  return std::all_of(uses.begin(), uses.end(), [](const Use& use) { return has_trait(use.user, trait::joins); });
}

// Whether all that shares the value's memory is read in the graph alone.
bool is_only_read(const Value* value) {
  const auto& uses = value->uses();
  return std::all_of(uses.begin(), uses.end(), [](const Use& use) {
    const Op* op = op_of(use.user);
    if (use.user->kind() == c10::prim::ListConstruct) return is_only_joined(use.user->output());
    if (!op || op->has(trait::carries) || op->writes != Writes::nothing || op->memory == Memory::unknown) return false;
    const bool shares = use.offset == 0 && op->memory != Memory::fresh && op->memory != Memory::no_tensor;
    const auto outputs = use.user->outputs();
    return !shares || std::all_of(outputs.begin(), outputs.end(), is_only_read);
  });
}

bool run(Context& context) {
  static const Symbol pad = Symbol::fromQualString("ipex::pad");
  const std::vector<Node*> found = find_pads(context.graph);
  if (found.empty()) return false;
  bool changed = false;
  const OverwrittenValues overwritten(context.graph);
  for (Node* node : found) {
    const torch::jit::WithInsertPoint guard(node);
    std::vector<Value*> inputs = node->inputs().vec();
    if (node->kind() == c10::aten::constant_pad_nd) {
      const auto value = number(inputs[2]);
      if (!value) {
        context.declined(node, "what it pads with is not a constant");
        continue;
      }
      inputs = {inputs[0], inputs[1], context.graph->insertConstant(std::string("constant")),
                context.graph->insertConstant(*value)};
    }
    context.applied(node, "became ipex::pad");
    changed = true;
    const bool may_be_input = !overwritten.contain(node->input(0)) && is_only_read(node->output());
    inputs.push_back(context.graph->insertConstant(may_be_input));
    replace(node, context.graph->insertNode(context.graph->create(pad, inputs)));
  }
  return changed;
}

}  // namespace

Pass rewrite_pad() { return {"rewrite_pad", run}; }

}  // namespace ipex::passes
