// rewrite_pad: what may be padded by nothing, as images are that windows should fit, is copied where something is padded only.
//
//   before   %y = aten::pad(%x, %pads, %mode, %value)
//   after    %y = ipex::pad(%x, %pads, %mode, %value, %may_be_input)
//
// and aten::constant_pad_nd with a constant. The result may be %x itself where nobody overwrites either, and neither it nor a view of it leaves
// the graph.
#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/escape.h"
#include "ir/pads.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool run(Context& context) {
  static const Symbol pad = Symbol::fromQualString("ipex::pad");
  const std::vector<Node*> found = find_pads(context.graph);
  if (found.empty()) return false;
  bool changed = false;
  const OverwrittenValues overwritten(context.graph);
  Escapes escapes;
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
    context.became(node, "ipex::pad");
    changed = true;
    const bool may_be_input = !overwritten.contain(node->input(0)) && !overwritten.contain(node->output()) &&
                              !escapes.contain(node->output());
    inputs.push_back(context.graph->insertConstant(may_be_input));
    replace(node, context.graph->insertNode(context.graph->create(pad, inputs)));
  }
  return changed;
}

}  // namespace

Pass rewrite_pad() { return {"rewrite_pad", run}; }

}  // namespace ipex::passes
