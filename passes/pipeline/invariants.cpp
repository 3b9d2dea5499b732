#include "pipeline/invariants.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor/anchor.h"
#include "anchor/prepack.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "lower/lower_ops.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

bool is_known(const Value* value) { return toIValue(value).has_value(); }

bool is_anchor(const Node* node) {
  static const OpName ops[] = {OpName("ipex::convolution_run"), OpName("ipex::linear_run"), OpName("ipex::lstm_run"),
                               OpName("ipex::gru_run")};
  return is_of_any(ops, node);
}

bool converts_layout(const Node* node) {
  static const OpName op("ipex::to_channels_last");
  return op.is_of(node);
}

bool reduces_precision(const Node* node) {
  static const OpName ops[] = {OpName("ipex::lower_precision"), OpName("ipex::quantize"),
                               OpName("ipex::quantized_linear_run"), OpName("ipex::quantized_convolution_run")};
  return is_of_any(ops, node);
}

bool reads_integer_weights(const Node* node) {
  static const OpName ops[] = {OpName("ipex::dynamic_linear_run"), OpName("ipex::dynamic_lstm_run"),
                               OpName("ipex::dynamic_gru_run")};
  return is_of_any(ops, node);
}

bool joins_layers(const Node* node) {
  static const OpName ops[] = {OpName("ipex::linear_chain_run"), OpName("ipex::joined_linears_run"),
                               OpName("ipex::convolution_chain_run"), OpName("ipex::excitation_run"),
                               OpName("ipex::grouped_linear_run")};
  return is_of_any(ops, node);
}

bool is_chain(const Node* node) {
  static const OpName op("ipex::elementwise");
  return op.is_of(node);
}

bool reads_a_cache(const Node* node) {
  static const OpName op("ipex::cached_attention");
  return op.is_of(node);
}

bool moves_by_a_plan(const Node* node) {
  static const OpName ops[] = {OpName("ipex::rearrange"), OpName("ipex::row_moves_prepack")};
  return is_of_any(ops, node);
}

bool observes(const Node* node) {
  static const OpName op("ipex::observe");
  return op.is_of(node);
}

bool is_layer_to_prepack(const Node* node) {
  static const OpName linear("aten::linear");
  if (linear.is_of(node)) return !reason_against_prepacking_linear(node);
  return has_trait(node, trait::convolves) && !reason_against_prepacking_convolution(node);
}

bool casts_size_to_tensor(const Node* node) {
  static const OpName to_integer("aten::Int.Tensor"), from_number("prim::NumToTensor.Scalar");
  if (!to_integer.is_of(node)) return false;
  const Node* tensor = node->input()->node();
  return from_number.is_of(tensor) && tensor->output()->uses().size() == 1 &&
         tensor->input()->type()->isSubtypeOf(*c10::IntType::get());
}

bool is_changed_list(const Node* node) {
  return makes_list(node) && !is_held(node->output()) && may_change(node->output());
}

bool drops_nothing(const Node* node) {
  static const OpName ops[] = {OpName("aten::dropout"), OpName("aten::feature_dropout"), OpName("aten::dropout_")};
  return is_of_any(ops, node) && is_false(node->namedInput("train"));
}

bool multiplies_constant_matrix(const Node* node) {
  static const OpName ops[] = {OpName("aten::matmul"), OpName("aten::mm")};
  if (!is_of_any(ops, node)) return false;
  const auto factor = toIValue(node->input(1));
  if (!factor || !factor->isTensor()) return false;
  const at::Tensor& matrix = factor->toTensor();
  return matrix.dim() == 2 && is_packable(matrix.scalar_type()) && matrix.device().is_cpu() && matrix.numel() > 0;
}

bool is_synonym(const Node* node) {
  static const OpName ops[] = {OpName("aten::concat"), OpName("aten::concatenate"), OpName("aten::swapaxes"),
                               OpName("aten::swapdims")};
  return is_of_any(ops, node);
}

// Scales of several channels are for weights.
bool rounds_weight(const Node* node) {
  static const Symbol kinds[] = {Symbol::fromQualString("aten::quantize_per_channel"),
                                 Symbol::fromQualString("aten::fake_quantize_per_channel_affine"),
                                 Symbol::fromQualString("quantized_decomposed::quantize_per_channel")};
  return std::count(std::begin(kinds), std::end(kinds), node->kind()) > 0 && node->outputs().size() == 1 &&
         std::all_of(node->inputs().begin(), node->inputs().end(), is_known);
}

}  // namespace

const Invariant aten_layers{"aten_layers", "layers are aten's ops, with their weights as arguments", true, is_anchor};
const Invariant aten_names{"aten_names", "an op that a kernel of ours may compute has aten's name", true, is_lowered};
const Invariant eager_layouts{"eager_layouts", "every tensor has the layout that it has in eager", true,
                              converts_layout};
const Invariant full_precision{"full_precision", "layers compute in the dtype that the model gave them", true,
                               reduces_precision};
const Invariant float_weights{"float_weights", "weights that the model has in floats are floats", true,
                              reads_integer_weights};
const Invariant layers_apart{"layers_apart", "every layer has a run op and a context of its own", true, joins_layers};
const Invariant plain_arithmetic{"plain_arithmetic", "elementwise ops that no epilogue has taken stand alone", true,
                                 is_chain};
const Invariant plain_attention{"plain_attention", "attention reads keys and values that were joined before it", true,
                                reads_a_cache};
const Invariant plain_views{"plain_views", "reshapes, permutations and rolls have aten's names", true, moves_by_a_plan};
const Invariant unobserved{"unobserved", "no observer sees what layers read", true, observes};

const Invariant anchors_prepacked{"anchors_prepacked", "a linear or convolution that can be packed is an anchor", false,
                                  is_layer_to_prepack};
const Invariant integer_sizes{"integer_sizes", "a size goes through no tensor on its way to an integer", false,
                              casts_size_to_tensor};
const Invariant lists_are_values{"lists_are_values", "nobody changes a list that prim::ListConstruct makes", false,
                                 is_changed_list};
const Invariant ops_lowered{"ops_lowered", "an op that a kernel of ours computes whatever it is given has our name",
                            false, is_to_lower};
const Invariant no_dropout{"no_dropout", "dropout that hands its input through is gone", false, drops_nothing};
const Invariant one_linear_pattern{"one_linear_pattern", "a product with a constant matrix is aten::linear", false,
                                   multiplies_constant_matrix};
const Invariant one_name_per_op{"one_name_per_op", "torch's synonyms have one name", false, is_synonym};
const Invariant roundings_read{"roundings_read", "a weight that was rounded channel by channel is a constant", false,
                               rounds_weight};

Contract operator+(Contract a, const Contract& b) {
  a.needed.insert(a.needed.end(), b.needed.begin(), b.needed.end());
  a.established.insert(a.established.end(), b.established.begin(), b.established.end());
  a.broken.insert(a.broken.end(), b.broken.begin(), b.broken.end());
  return a;
}

const std::vector<const Invariant*>& invariants() {
  static const std::vector<const Invariant*> all{
      &roundings_read,    &integer_sizes, &one_name_per_op, &lists_are_values, &no_dropout,       &one_linear_pattern,
      &anchors_prepacked, &ops_lowered,   &aten_layers,     &aten_names,       &plain_arithmetic, &plain_views,
      &plain_attention,   &eager_layouts, &full_precision,  &float_weights,    &unobserved,       &layers_apart};
  return all;
}

std::optional<Violation> find_violation(Graph& graph, const std::vector<const Invariant*>& held) {
  std::optional<Violation> found;
  for_each_node(graph.block(), [&](Node* node) {
    if (found) return;
    const auto broken =
        std::find_if(held.begin(), held.end(), [&](const Invariant* i) { return i->is_broken_by(node); });
    if (broken != held.end()) found = Violation{*broken, node};
  });
  return found;
}

}  // namespace ipex::passes
