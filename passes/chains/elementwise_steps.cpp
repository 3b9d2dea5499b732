#include "chains/elementwise_steps.h"

#include <ipex/post_ops.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/floating.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"

namespace ipex::passes {
namespace {

bool has_fused_power(const Value* exponent) {
  const auto found = number(exponent);
  return found == 3 || found == 4 || found == -1 || found == -2 || found == -.5;
}

FusionRule with_functions(FusionRule rule) {
  return with_activations(std::move(rule), /*are_packed=*/false)
      .match("%z = aten::pow.Tensor_Scalar(%y, %exponent)")
      .only_if("exponent", has_fused_power)
      .append("pow(%exponent)");
}

FusionRule with_arithmetic(FusionRule rule) {
  return std::move(rule)
      .match("%z = aten::sub(%y, %other, %alpha)")
      .only_if("other", is_tensor)
      .append("sub_scaled(%alpha)", {"other"})
      .match("%z = aten::rsub(%y, %other, %alpha)")
      .only_if("other", is_tensor)
      .only_if("alpha", is_one)
      .append("rsub", {"other"})
      .match("%z = ipex::add_like(%y, %other, %alpha)")
      .only_if("alpha", is_one)
      .append("add_", {"other"})
      .match("%z = ipex::sub_like(%y, %other, %alpha)")
      .only_if("alpha", is_one)
      .append("sub_", {"other"})
      .match("%z = ipex::mul_like(%y, %other)")
      .append("mul_", {"other"})
      .match("%z = ipex::div_like(%y, %other)")
      .append("div_", {"other"});
}

FusionRule with_comparisons(FusionRule rule) {
  for (const std::string op : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    rule = std::move(rule)
               .match("%z = aten::" + op + "(%y, %number)")
               .only_if("number", is_number)
               .append(op + "_number(%number)")
               .match("%z = aten::" + op + "(%y, %other)")
               .only_if("other", is_tensor)
               .append(op, {"other"});
  }
  return rule;
}

FusionRule with_logic(FusionRule rule) {
  for (const std::string op : {"and", "or", "xor"}) {
    rule = std::move(rule).match("%z = aten::logical_" + op + "(%y, %other)").append("logical_" + op, {"other"});
    for (const std::string name : {"bitwise_" + op + ".Tensor", "__" + op + "__.Tensor"}) {
      rule = std::move(rule).match("%z = aten::" + name + "(%y, %other)").append("bitwise_" + op, {"other"});
    }
  }
  for (const std::string op : {"logical_not", "bitwise_not"}) {
    rule = std::move(rule).match("%z = aten::" + op + "(%y)").append(op);
  }
  return rule;
}

FusionRule with_choices(FusionRule rule) {
  return std::move(rule)
      .match("%z = aten::masked_fill(%y, %mask, %number)")
      .only_if("number", is_number)
      .append("masked_fill(%number)", {"mask"})
      .match("%z = ipex::masked_fill_like(%y, %mask, %number)")
      .only_if("number", is_number)
      .append("masked_fill_(%number)", {"mask"})
      .match("%z = aten::where.ScalarOther(%y, %other, %number)")
      .only_if("number", is_number)
      .append("where_or_number(%number)", {"other"})
      .match("%z = aten::where.ScalarSelf(%y, %number, %other)")
      .only_if("number", is_number)
      .append("where_number_or(%number)", {"other"})
      .match("%z = aten::where.self(%y, %other, %third)")
      .append("where", {"other", "third"});
}

std::optional<NodeAsPostOp> as_post_op(Node* node) {
  static const FusionRule own =
      with_choices(with_logic(with_comparisons(with_arithmetic(with_functions(FusionRule("elementwise_steps"))))));
  for (const FusionRule& rule : fusion_rules()) {
    if (auto found = rule.as_post_op(node)) return found;
  }
  return own.as_post_op(node);
}

bool ends_a_stretch(const Node* node) {
  static const OpName attention("ipex::attention"), torchs("ipex::scaled_dot_product_attention");
  return is_run(node) || attention.is_of(node) || torchs.is_of(node) || !op_of(node) || !node->blocks().empty() ||
         stops_motion(node) || node->hasSideEffects() || node->isNondeterministic();
}

// Of bools; of integers these give integers.
bool is_logic(const std::string& post_op) { return post_op.starts_with("logical_") || post_op.starts_with("bitwise_"); }

// Whether the step reads a value for which this holds.
template <typename Holds>
bool reads(const NodeAsPostOp& op, const Holds& holds) {
  return holds(op.y) || std::any_of(op.operands.begin(), op.operands.end(), holds);
}

}  // namespace

ElementwiseSteps::ElementwiseSteps(const std::shared_ptr<Graph>& graph) { look_at(graph->block()); }

const ElementwiseStep* ElementwiseSteps::of(const Node* node) const {
  const auto found = steps_.find(node);
  return found == steps_.end() ? nullptr : &found->second;
}

void ElementwiseSteps::remove(const Node* node, Value* replacement) {
  for (const Use& use : replacement->uses()) {
    const auto reader = steps_.find(use.user);
    if (reader == steps_.end()) continue;
    NodeAsPostOp& op = reader->second.op;
    if (op.y == node->output()) op.y = replacement;
    for (Value*& operand : op.operands) {
      if (operand == node->output()) operand = replacement;
    }
  }
  steps_.erase(node);
}

void ElementwiseSteps::look_at(Block* block) {
  int writes = 0, stretch = 0;
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) look_at(inner);
    const Op* op = op_of(node);
    const bool gives_bools = op && op->has(trait::gives_bools);
    if (gives_bools) bools_.insert(node->output());
    if (op && op->memory == Memory::fresh && node->outputs().size() == 1) {
      if (auto found = as_step(node)) {
        const bool is_of_bools = gives_bools || is_logic(found->post_op);
        (is_of_bools ? bools_ : floating_).insert(node->output());
        steps_.emplace(node, ElementwiseStep{std::move(*found), writes, stretch, is_of_bools});
      }
    }
    // What is made of floats is taken for floats too.
    const auto inputs = node->inputs();
    const bool gives_tensors = op && (op->memory != Memory::no_tensor || op->has(trait::carries));
    if (gives_tensors && !gives_bools &&
        std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) { return floats(input); })) {
      floating_.insert(node->outputs().begin(), node->outputs().end());
    }
    writes += stops_motion(node);
    stretch += ends_a_stretch(node);
  }
}

std::optional<NodeAsPostOp> ElementwiseSteps::as_step(Node* node) {
  auto found = as_post_op(node);
  if (!found || reads(*found, [](const Value* value) { return !has_tensor_type(value); }) ||
      !ipex::has_elementwise_kernel(found->post_op)) {
    return std::nullopt;
  }
  const Op& op = *op_of(node);
  const bool is_activation = op.has(trait::elementwise | trait::keeps_dtype) && !op.has(trait::chooses);
  const bool has_fraction = found->post_op.find('.') != std::string::npos;
  const bool is_step =
      is_logic(found->post_op)
          ? reads(*found, [&](const Value* value) { return bools_.count(value) > 0; })
          : is_activation || has_fraction || reads(*found, [&](const Value* value) { return floats(value); });
  return is_step ? found : std::nullopt;
}

bool ElementwiseSteps::floats(const Value* value) const { return floating_.count(value) || is_floating(value); }

}  // namespace ipex::passes
