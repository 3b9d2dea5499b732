// observe: in a model that is prepared for quantisation, observers see what the layers read that may compute in 8 bits.
//
//   before   %y = ipex::convolution_run(%x, %context, [%operand], ..)
//   after    %observer = ipex::observer_prepack(%key, %weight_magnitudes)
//            %seen = ipex::observe(%x, %observer)
//            %y = ipex::convolution_run(%seen, %context, [%operand], ..)
//
// Added operands that other such layers make are seen as well, and what layers make for attention. A tensor that several layers read is seen once. Where
// linears alone read it, and no layer makes it that could give numbers at once, its observer is told the largest magnitude
// in each column of their weights: then SmoothQuant may move some of the one to the other.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <unordered_map>
#include <unordered_set>

#include "pipeline/passes.h"
#include "precision/sites.h"

namespace ipex::passes {
namespace {

using torch::jit::WithInsertPoint;

// By key.
using Magnitudes = std::unordered_map<std::string, at::Tensor>;

Magnitudes magnitudes_of_columns(const Sites& sites) {
  std::unordered_set<const Node*> makers;
  for (const Site& site : sites.layers) makers.insert(site.anchor.run());
  for (const SharedSite& site : sites.shared) makers.insert(site.value->node());
  Magnitudes all;
  for (const Site& site : sites.layers) {
    const bool is_smoothable =
        site.anchor.spatial_rank() == 0 && !site.reads_piece && !makers.count(site.anchor.input()->node());
    const at::Tensor weight = torch::jit::toIValue(site.anchor.argument("weight"))->toTensor();
    const at::Tensor own = is_smoothable ? std::get<0>(weight.abs().max(0)) : at::Tensor();
    const auto [found, is_new] = all.emplace(site.input_key, own);
    at::Tensor& common = found->second;
    if (!is_new && common.defined()) common = own.defined() ? at::maximum(common, own) : own;
  }
  return all;
}

class Observing {
 public:
  explicit Observing(Magnitudes magnitudes) : magnitudes_(std::move(magnitudes)) {}

  // What `node` reads instead of `value`.
  Value* seen_by(Node* node, Value* value, const std::string& key) {
    if (!seen_.insert(key).second) return value;
    const WithInsertPoint guard(node);
    Graph& graph = *node->owningGraph();
    const at::Tensor& magnitudes = magnitudes_[key];
    const torch::jit::IValue known = magnitudes.defined() ? torch::jit::IValue(magnitudes) : torch::jit::IValue();
    Value* observer = graph.insert(Symbol::fromQualString("ipex::observer_prepack"), {key, known});
    Value* seen = graph.insert(Symbol::fromQualString("ipex::observe"), {value, observer});
    seen->node()->setSourceRange(node->sourceRange());
    return seen;
  }

  // All who read the value read what was seen instead.
  void see_for_all(Value* value, const std::string& key) {
    Value* seen = seen_by(value->node()->next(), value, key);
    if (seen != value) value->replaceAllUsesAfterNodeWith(seen->node(), seen);
  }

 private:
  Magnitudes magnitudes_;
  std::unordered_set<std::string> seen_;
};

bool run(Context& context) {
  const auto& quantization = context.options.quantization;
  if (!quantization || !quantization->observes) return false;
  const Sites sites = quantizable_sites(context);
  Observing observing(magnitudes_of_columns(sites));
  for (const SharedSite& site : sites.shared) {
    observing.see_for_all(site.value, site.key);
    context.applied(site.value->node(), "what layers and others read of it is observed");
  }
  for (const Site& site : sites.layers) {
    Node* run = site.anchor.run();
    if (site.reads_piece) {
      observing.see_for_all(site.seen, site.input_key);
    } else {
      run->replaceInput(0, observing.seen_by(run, run->input(0), site.input_key));
    }
    Node* operands = run->input(2)->node();
    for (size_t i = 0; i < site.operand_keys.size(); ++i) {
      if (!site.operand_keys[i]) continue;
      operands->replaceInput(i, observing.seen_by(operands, operands->input(i), *site.operand_keys[i]));
    }
    context.applied(run, "what it reads is observed");
  }
  for (const AttentionSite& site : sites.attentions) {
    for (const AttentionSite::Part& part : site.parts) {
      observing.see_for_all(part.origin, part.key);
    }
    context.applied(site.node, "its query, key and value are observed");
  }
  return !sites.layers.empty();
}

}  // namespace

Pass observe() { return {"observe", run, needs(full_precision, layers_apart, plain_arithmetic) + breaks(unobserved)}; }

}  // namespace ipex::passes
