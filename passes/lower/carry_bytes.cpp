// carry_bytes: 8-bit numbers pass from layer to layer.
//
//   before   %y = ipex::quantized_linear_run(%x, %first, ..)
//            %v = aten::view(%y, ..)
//            %q = ipex::quantize(%v, %scale, %zero_point)
//            %z = ipex::quantized_linear_run(%q, %second, ..)
//   after    %y = ipex::quantized_linear_run(%x, %first with %scale and %zero_point, ..)
//            %q = aten::view(%y, ..)
//            %z = ipex::quantized_linear_run(%q, %second, ..)
//
// Norms, elementwise ops and the like have a port for it:
//
//   before   %y = ipex::layer_norm(%x, ..)                           %q = ipex::quantize(%y, %scale, %zero_point)
//   after    %q = ipex::layer_norm(%x, .., %rounded=[%scale, %zero_point])
//
// The numbers are the same: rounding keeps the order, so it may come before an op that chooses among elements, and before
// one that moves them. Numbers that became floats and are made numbers again are the same ones. A layer gives floats where
// somebody reads floats, or numbers of another scale.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_set>

#include "anchor/anchor.h"
#include "chains/elementwise_ports.h"
#include "ir/calls.h"
#include "ir/floating.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

bool is_quantize(const Node* node) {
  static const OpName quantize("ipex::quantize");
  return quantize.is_of(node);
}

bool is_dequantize(const Node* node) {
  static const OpName dequantize("ipex::dequantize");
  return dequantize.is_of(node);
}

bool has_factors(const Node* quantize) { return !toIValue(quantize->input(3))->isNone(); }

bool has_same_scale(const Node* a, const Node* b) {
  return toIValue(a->input(1))->toDouble() == toIValue(b->input(1))->toDouble() &&
         toIValue(a->input(2))->toInt() == toIValue(b->input(2))->toInt();
}

// Whether all who read the tensor want the numbers that `quantize` makes of it, as it is when it is made, or its sizes alone.
bool is_read_as(const Value* value, const Node* quantize) {
  return std::all_of(value->uses().begin(), value->uses().end(), [&](const Use& use) {
    return asks_for_sizes(use.user) || (is_quantize(use.user) && !has_factors(use.user) &&
                                        has_same_scale(use.user, quantize) && can_wait(value->node(), use.user));
  });
}

// Whether the op gives the same of 8-bit numbers as of the floats that they stand for.
bool moves_or_chooses(const Node* node) {
  static const OpName pools[] = {OpName("aten::max_pool1d"), OpName("aten::max_pool2d"), OpName("aten::max_pool3d")};
  const bool is_atens_pool = is_of_any(pools, node);
  const bool joins = has_trait(node, trait::joins);
  return has_trait(node, trait::chooses) && !has_trait(node, trait::elementwise) && !is_atens_pool &&
         node->outputs().size() == 1 && (!joins || elements_of(node->input(0)));
}

class Carrying {
 public:
  explicit Carrying(Context& context) : context_(context) {}

  bool run() {
    for_each(context_.graph, "ipex::quantize", [&](Node* node) { waiting_.push_back(node); });
    bool changed = false;
    // What is carried on waits in turn. Nothing else can come to be carried: that takes a new reader of its tensor.
    while (!waiting_.empty()) {
      Node* quantize = waiting_.back();
      waiting_.pop_back();
      if (!gone_.count(quantize)) changed |= carry(quantize);
    }
    return changed;
  }

 private:
  // Whether anything was done about the tensor that this node makes numbers of.
  bool carry(Node* quantize) {
    Value* value = quantize->input(0);
    Node* maker = value->node();
    if (is_dequantize(maker) && !has_factors(quantize) && has_same_scale(maker, quantize)) {
      quantize->output()->replaceAllUsesWith(maker->input(0));
      gone_.insert(quantize);
      quantize->destroy();
      return true;
    }
    if (has_factors(quantize) || maker->owningBlock() != quantize->owningBlock() || !is_read_as(value, quantize)) {
      return false;
    }
    if (is_quantized_layer_of_floats(maker)) {
      const std::vector<double> numbers{toIValue(quantize->input(1))->toDouble(),
                                        static_cast<double>(toIValue(quantize->input(2))->toInt())};
      set_argument(maker->input(1)->node(), "result", numbers);
      context_.applied(maker, "gives 8-bit numbers");
    } else if (round_port(value, quantize)) {
      context_.applied(maker_of(value), "gives 8-bit numbers");
    } else if (moves_or_chooses(maker)) {
      quantize_inputs(maker, quantize);
    } else {
      return false;
    }
    value->setType(c10::TensorType::get());
    read_directly(value);
    return true;
  }

  // Whether the value is a result of an op that has a port for this, which no dtype of 16 bits takes.
  static bool round_port(const Value* value, const Node* quantize) {
    Node* maker = maker_of(value);
    if (!has_argument(maker, "rounded")) return false;
    const auto dtype = has_argument(maker, "dtype") ? *toIValue(maker->namedInput("dtype")) : torch::jit::IValue();
    if (!dtype.isNone() && dtype.toScalarType() != at::kFloat) return false;
    const std::vector<Value*> results = results_of(maker);
    const auto result = std::find(results.begin(), results.end(), value);
    if (result == results.end()) return false;
    std::vector<double> rounded = toIValue(maker->namedInput("rounded"))->toDoubleVector();
    rounded.resize(2 * results.size());
    const auto i = 2 * static_cast<size_t>(result - results.begin());
    rounded[i] = toIValue(quantize->input(1))->toDouble();
    rounded[i + 1] = static_cast<double>(toIValue(quantize->input(2))->toInt());
    set_argument(maker, "rounded", rounded);
    return true;
  }

  // The numbers stand for the tensor's readers, who were the nodes that made numbers of it.
  void read_directly(Value* value) {
    auto uses = value->uses();  // as they are now: the readers of the numbers come in their place
    std::erase_if(uses, [](const Use& use) { return asks_for_sizes(use.user); });
    for (const Use& use : uses) {
      use.user->output()->replaceAllUsesWith(value);
      gone_.insert(use.user);
    }
    for (const Use& use : uses) use.user->destroy();
  }

  void quantize_inputs(Node* node, const Node* quantize) {
    Node* reader = node;
    size_t count = 1;
    const WithInsertPoint guard(node);
    Graph& graph = *node->owningGraph();
    if (has_trait(node, trait::joins)) {
      Node* list = node->input(0)->node();  // which may have other readers
      reader = graph.insertNode(graph.createList(c10::TensorType::get(), list->inputs()));
      node->replaceInput(0, reader->output());
      if (!list->hasUses()) list->destroy();
      count = reader->inputs().size();
    }
    const WithInsertPoint before(reader);
    for (size_t i = 0; i < count; ++i) {
      Value* numbers = graph.insert(quantize->kind(), {reader->input(i), *toIValue(quantize->input(1)),
                                                       *toIValue(quantize->input(2)), torch::jit::IValue()});
      numbers->node()->setSourceRange(quantize->sourceRange());
      reader->replaceInput(i, numbers);
      gone_.erase(numbers->node());  // it may lie where one lay that is gone
      waiting_.push_back(numbers->node());
    }
  }

  Context& context_;
  std::vector<Node*> waiting_;
  std::unordered_set<const Node*> gone_;
};

bool run(Context& context) { return Carrying(context).run(); }

}  // namespace

Pass carry_bytes() { return {"carry_bytes", run, needs(lists_are_values, layers_apart, ops_lowered)}; }

}  // namespace ipex::passes
