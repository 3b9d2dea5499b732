#include "finalize/lower_precision.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <map>
#include <set>

#include "anchor.h"
#include "graph_walk.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

const char* name_of(at::ScalarType dtype) { return dtype == at::kBFloat16 ? "bfloat16" : "float16"; }

bool has_float32_kernels_only(const Node* node) {
  static const std::set<std::string> kinds{"ipex::lstm_run",  "ipex::gru_run",        "ipex::matmul_run",
                                           "ipex::attention", "ipex::add_layer_norm", "ipex::rms_norm"};
  return kinds.count(kind_of(node)) > 0;
}

class Lowering {
 public:
  explicit Lowering(at::ScalarType dtype) : dtype_(dtype) {}

  std::optional<std::string> reason_against(const Anchor& anchor) const {
    if (anchor.dtype() != at::kFloat) return "its weight has 16 bits already";
    if (!lowered(weight_of(anchor)).isfinite().equal(weight_of(anchor).isfinite())) {
      return c10::str("its weight overflows in ", name_of(dtype_));
    }
    return std::nullopt;
  }

  void lower(const Anchor& anchor) {
    Node* run = anchor.run();
    Graph* graph = run->owningGraph();
    anchor.set_argument("weight", lowered(weight_of(anchor)));
    run->replaceInput(0, cast_before(run, anchor.input()));
    if (!anchor.operands().empty()) {
      std::vector<Value*> operands;
      for (Value* operand : anchor.operands()) operands.push_back(cast_before(run, operand));
      const WithInsertPoint guard(run);
      run->replaceInput(2, graph->insertNode(graph->createList(c10::TensorType::get(), operands))->output());
    }
    const WithInsertPoint guard(run->next());
    Value* result = graph->insert(Symbol::fromQualString("ipex::restore_precision"), {anchor.output()});
    result->copyMetadata(anchor.output());
    result->node()->setSourceRange(run->sourceRange());
    anchor.output()->setType(c10::TensorType::get());
    anchor.output()->replaceAllUsesAfterNodeWith(result->node(), result);
  }

 private:
  static at::Tensor weight_of(const Anchor& anchor) { return toIValue(anchor.argument("weight"))->toTensor(); }

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

}  // namespace

void lower_precision(const std::shared_ptr<Graph>& graph, at::ScalarType dtype, Report& report) {
  std::vector<Node*> nodes;
  for_each_node(graph->block(), [&](Node* node) { nodes.push_back(node); });
  Lowering lowering(dtype);
  Recorder recorder("lower_precision", report);
  for (Node* node : nodes) {
    if (has_float32_kernels_only(node)) {
      recorder.declined(node, "it computes in float32");
    } else if (kind_of(node).starts_with("ipex::") && kind_of(node).ends_with("_run")) {
      const auto anchor = Anchor::producing(node->output());
      TORCH_CHECK(anchor, "ipex.jit_optimize: expected a model that was not optimised before, to give it a dtype, got ",
                  "one with ", describe(node), ". Optimise the original with dtype.");
      if (const auto reason = lowering.reason_against(*anchor)) {
        recorder.declined(node, *reason);
        continue;
      }
      lowering.lower(*anchor);
      report.push_back({"lower_precision", describe(node), true, std::string("runs in ") + name_of(dtype)});
    }
  }
  torch::jit::EliminateDeadCode(graph);  // the float32 weights
}

}  // namespace ipex::passes
