// rewrite_fills: tensors of one number are made in memory that is kept between calls.
//
//   before   %y = aten::new_zeros(%x, %size, None, None, None, None)
//   after    %y = ipex::new_full(%x, %size, 0)
//
// new_ones and new_full likewise; zeros_like, ones_like and full_like become ipex::full_like.
// Runs last, as rewrite_cat does. Declines where another dtype, device or layout is asked for: such tensors are mostly small.
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

struct Fill {
  const char* aten;
  const char* own;
  std::optional<int64_t> value;  // none where the model gives it
};

const Fill fills[] = {{"aten::new_zeros", "ipex::new_full", 0},  {"aten::new_ones", "ipex::new_full", 1},
                      {"aten::new_full", "ipex::new_full", {}},  {"aten::zeros_like", "ipex::full_like", 0},
                      {"aten::ones_like", "ipex::full_like", 1}, {"aten::full_like", "ipex::full_like", {}}};

// pin_memory may be false, too.
bool is_nothing(const Value* option) {
  return option->mustBeNone() || torch::jit::toIValue(option) == torch::jit::IValue(false);
}

bool run(Context& context) {
  bool changed = false;
  for (const Fill& fill : fills) {
    for_each(context.graph, fill.aten, [&](Node* node) {
      const size_t given = (std::string_view(fill.own) == "ipex::new_full" ? 2 : 1) + (fill.value ? 0 : 1);
      const auto options = node->inputs().slice(given);
      if (!std::all_of(options.begin(), options.end(), is_nothing)) {
        return context.declined(node, "it asks for another dtype, device or layout");
      }
      const torch::jit::WithInsertPoint guard(node);
      std::vector<Value*> inputs = node->inputs().slice(0, given).vec();
      if (fill.value) inputs.push_back(context.graph->insertConstant(*fill.value));
      context.applied(node, std::string("became ") + fill.own);
      replace(node, context.graph->insertNode(context.graph->create(Symbol::fromQualString(fill.own), inputs)));
      changed = true;
    });
  }
  return changed;
}

}  // namespace

Pass rewrite_fills() { return {"rewrite_fills", run}; }

}  // namespace ipex::passes
