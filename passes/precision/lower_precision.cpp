// lower_precision: where the user asked for a dtype of 16 bits, every packed op with a float32 weight computes in it.
//
//   before   %context = ipex::linear_prepack(%w, %b, ..)
//            %y = ipex::linear_run(%x, %context, [%operand], ..)
//   after    %context = ipex::linear_prepack(%w in 16 bits, %b, ..)
//            %l = ipex::lower_precision(%x, %dtype)    %o = ipex::lower_precision(%operand, %dtype)
//            %s = ipex::linear_run(%l, %context, [%o], ..)
//            %y = ipex::restore_precision(%s)
//
// What lies between two of them stays float32; pairs of casts between neighbours then fold. The bias
// stays float32: it is added before the sum is rounded.
// Declines a weight that overflows in that dtype, and transposed convolutions of a group per channel, and reports the ops
// that compute in float32 only. Throws when an op was packed by an earlier optimisation.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <map>

#include "anchor/anchor.h"
#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

const char* name_of(at::ScalarType dtype) { return dtype == at::kBFloat16 ? "bfloat16" : "float16"; }

class Lowering {
 public:
  explicit Lowering(at::ScalarType dtype) : dtype_(dtype) {}

  std::optional<std::string> reason_against(const Anchor& anchor) const {
    if (anchor.dtype() != at::kFloat) return "its weight has 16 bits already";
    if (!lowered(weight_of(anchor)).isfinite().equal(weight_of(anchor).isfinite())) {
      return c10::str("its weight overflows in ", name_of(dtype_));
    }
    // It multiplies channels of other groups too, by zeros. (So does aten, whose 16 bits we give where the model asks them.)
    if (anchor.is_transposed() && has_a_group_per_channel(anchor)) {
      return "oneDNN lets a NaN of one channel into another";
    }
    return std::nullopt;
  }

  void lower(const Anchor& anchor) {
    Node* run = anchor.run();
    Graph* graph = run->owningGraph();
    anchor.set_argument("weight", lowered(weight_of(anchor)));
    run->replaceInput(0, cast_before(run, anchor.input()));
    std::vector<Value*> operands;
    for (Value* operand : anchor.operands()) operands.push_back(cast_before(run, operand));
    Node* list = graph->createList(c10::TensorType::get(), operands)->insertBefore(run);
    run->replaceInput(2, list->output());
    const WithInsertPoint guard(run->next());
    Value* result = graph->insert(Symbol::fromQualString("ipex::restore_precision"), {anchor.output()});
    result->copyMetadata(anchor.output());
    result->node()->setSourceRange(run->sourceRange());
    anchor.output()->setType(c10::TensorType::get());
    anchor.output()->replaceAllUsesAfterNodeWith(result->node(), result);
  }

  // What was cast may be another value from here on.
  void forget_casts() { casts_.clear(); }

 private:
  static at::Tensor weight_of(const Anchor& anchor) { return toIValue(anchor.argument("weight"))->toTensor(); }

  // Of a transposed convolution, whose weight has the input channels first.
  static bool has_a_group_per_channel(const Anchor& anchor) {
    const at::Tensor weight = weight_of(anchor);
    return weight.size(0) > 1 && weight.size(1) == 1 && weight.size(0) == constant_integer(anchor.argument("groups"));
  }

  at::Tensor lowered(const at::Tensor& tensor) const { return tensor.to(dtype_); }

  // One cast of a value for all of its readers in a block.
  Value* cast_before(Node* node, Value* value) {
    Value*& cast = casts_[{node->owningBlock(), value}];
    if (cast) return cast;
    const WithInsertPoint guard(node);
    Graph* graph = node->owningGraph();
    if (const auto constant = toIValue(value);
        constant && constant->isTensor() && constant->toTensor().scalar_type() == at::kFloat) {
      return cast = graph->insertConstant(lowered(constant->toTensor()));
    }
    return cast = graph->insert(Symbol::fromQualString("ipex::lower_precision"), {value, dtype_});
  }

  at::ScalarType dtype_;
  std::map<std::pair<Block*, Value*>, Value*> casts_;
};

bool run(Context& context) {
  if (!context.options.dtype) return false;
  std::vector<Node*> nodes;
  for_each_node(context.graph->block(), [&](Node* node) { nodes.push_back(node); });
  Lowering lowering(*context.options.dtype);
  bool changed = false;
  for (Node* node : nodes) {
    if (may_write(node)) lowering.forget_casts();
    if (has_trait(node, trait::float32_only)) {
      context.declined(node, "it computes in float32");
    } else if (is_run(node)) {
      const auto anchor = Anchor::producing(node->output());
      TORCH_CHECK(anchor, "ipex.jit_optimize: expected a model that was not optimised before, to give it a dtype, got ",
                  "one with ", describe(node), ". Optimise the original with dtype.");
      if (const auto reason = lowering.reason_against(*anchor)) {
        context.declined(node, *reason);
        continue;
      }
      lowering.lower(*anchor);
      context.applied(node, std::string("runs in ") + name_of(*context.options.dtype));
      changed = true;
    }
  }
  return changed;
}

}  // namespace

Pass lower_precision() { return {"lower_precision", run, needs(float_weights, layers_apart) + breaks(full_precision)}; }

}  // namespace ipex::passes
