// fuse_elementwise: elementwise ops that follow one another, and that no packed op took, become one op, which reads and
// writes memory once.
//
//   before   %s = aten::sigmoid(%g)
//            %m = aten::mul(%x, %s)
//            %y = aten::add(%m, %r, %alpha=1)
//   after    %y = ipex::elementwise([%g, %x, %r], ["sigmoid 0", "mul 1 3", "add 4 2"])
//
// A group is a tree of ops that ends in the one whose result others need; values in between have no readers outside. The
// steps are data: post-ops, as packed ops have them, with the numbers of what they read (runtime/ops/elementwise/steps.h).
// elementwise_steps.cpp says which ops can be steps. Bools, which comparisons give, stay inside: a group ends in floats.
//
// A norm that is expanded to the shape of what it was taken of, as in F.normalize, is read as it is before: a step broadcasts
// by itself.
//
// Runs after all fusions and the layout passes. Declines an op that stands alone, unless ours is the faster one; what may
// be integers (arithmetic on sizes is traced as tensors too); and leaves out what memory is overwritten after.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "aliasing.h"
#include "fusions/elementwise_steps.h"
#include "graph_walk.h"
#include "passes.h"
#include "single_pixel.h"
#include "unseen_write.h"

namespace ipex::passes {
namespace {

// The kernel holds the values of a block in the first cache.
constexpr size_t most_steps = 32, most_inputs = 12;

class Group {
 public:
  Group(const ElementwiseSteps& steps, Node* root) : steps_(steps), root_(root) {
    add(root);
    // A producer may have to wait until its other readers are in.
    for (bool grows = true; grows;) {
      grows = false;
      for (size_t i = 0; i < nodes_.size(); ++i) {
        for (Value* input : values_read(nodes_[i])) {
          if (nodes_.size() < most_steps && can_join(input->node()) && inputs_with(input->node()) <= most_inputs) {
            add(input->node());
            grows = true;
          }
        }
      }
    }
    std::sort(nodes_.begin(), nodes_.end(), [](const Node* a, const Node* b) { return a->isBefore(b); });
  }

  size_t size() const { return nodes_.size(); }

  // One op alone is, where ours is the faster one and aten would not work in place, and where ours can give the 8-bit
  // numbers that are made of its result. In aten a mask costs a jump for each element, in place too.
  bool is_worth_it() const {
    const NodeAsPostOp& op = steps_.of(root_)->op;
    return nodes_.size() > 1 || is_read_as_bytes() || is_choice(op) || (is_faster(op) && !separated_op(root_));
  }

  const std::vector<Node*>& nodes() const { return nodes_; }

  void rewrite(Context& context) {
    for (const Node* node : nodes_) {
      const bool is_alone = nodes_.size() == 1;
      context.applied(node, is_alone ? "became ipex::elementwise"
                                     : c10::str("one of ", nodes_.size(), " ops in one pass over memory"));
    }
    std::vector<Value*> inputs = inputs_of(members_);
    std::unordered_map<const Value*, size_t> numbers;
    for (const Value* input : inputs) numbers.emplace(input, numbers.size());
    c10::List<std::string> texts;
    for (Node* node : nodes_) {
      const NodeAsPostOp& op = steps_.of(node)->op;
      std::string text = op.post_op + ' ' + std::to_string(numbers.at(op.y));
      for (const Value* operand : op.operands) text += ' ' + std::to_string(numbers.at(operand));
      texts.push_back(text);
      numbers.emplace(node->output(), numbers.size());
    }
    Graph* graph = root_->owningGraph();
    const torch::jit::WithInsertPoint guard(root_);
    Value* list = graph->insertNode(graph->createList(c10::TensorType::get(), inputs))->output();
    Node* made = graph->insertNode(
        graph->create(Symbol::fromQualString("ipex::elementwise"), {list, graph->insertConstant(texts)}));
    replace(root_, made);
    for (auto node = nodes_.rbegin() + 1; node != nodes_.rend(); ++node) (*node)->destroy();
  }

 private:
  static bool is_choice(const NodeAsPostOp& op) {
    return op.post_op.starts_with("where") || op.post_op.starts_with("masked_fill");
  }

  static bool is_faster(const NodeAsPostOp& op) {
    static const std::unordered_set<std::string> faster{"tanh", "gelu_tanh", "exp",  "log",      "expm1", "log1p",
                                                        "mish", "elu",       "selu", "softplus", "celu"};
    // The gated image lies in memory that is kept between calls.
    if (op.operands.size() == 1) return is_single_pixel(op.y) != is_single_pixel(op.operands[0]);
    return faster.count(op.post_op.substr(0, op.post_op.find('('))) > 0;
  }

  bool is_read_as_bytes() const {
    static const OpName quantize("ipex::quantize");
    const auto& uses = root_->output()->uses();
    return !uses.empty() &&
           std::all_of(uses.begin(), uses.end(), [](const Use& use) { return quantize.is_of(use.user); });
  }

  std::vector<Value*> values_read(const Node* node) const {
    const NodeAsPostOp& op = steps_.of(node)->op;
    std::vector<Value*> values{op.y};
    for (Value* operand : op.operands) {
      if (std::find(values.begin(), values.end(), operand) == values.end()) values.push_back(operand);
    }
    return values;
  }

  void add(Node* node) {
    nodes_.push_back(node);
    members_.insert(node);
  }

  bool can_join(const Node* node) const {
    const ElementwiseStep* step = steps_.of(node);
    if (!step || members_.count(node) || node->owningBlock() != root_->owningBlock() ||
        step->writes_before != steps_.of(root_)->writes_before) {
      return false;
    }
    const auto& uses = node->output()->uses();
    return std::all_of(uses.begin(), uses.end(), [&](const Use& use) { return members_.count(use.user) > 0; });
  }

  // What the nodes read that none of them gives.
  std::vector<Value*> inputs_of(const std::unordered_set<const Node*>& members) const {
    std::vector<Value*> inputs;
    for (const Node* node : nodes_) {
      for (Value* value : values_read(node)) {
        const bool is_new = std::find(inputs.begin(), inputs.end(), value) == inputs.end();
        if (is_new && !members.count(value->node())) inputs.push_back(value);
      }
    }
    return inputs;
  }

  size_t inputs_with(Node* node) const {
    std::vector<Value*> inputs = inputs_of(members_);
    std::erase(inputs, node->output());
    size_t count = inputs.size();
    for (const Value* value : values_read(node)) {
      count += std::find(inputs.begin(), inputs.end(), value) == inputs.end();
    }
    return count;
  }

  const ElementwiseSteps& steps_;
  Node* root_;
  std::vector<Node*> nodes_;  // in the order of the graph, when all are in
  std::unordered_set<const Node*> members_;
};

// From the end, so that a group is as large as it can be.
bool run_in(Context& context, const ElementwiseSteps& steps, Block* block) {
  std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
  std::unordered_set<const Node*> taken;
  bool changed = false;
  for (auto it = nodes.rbegin(); it != nodes.rend(); ++it) {
    Node* node = *it;
    if (taken.count(node)) continue;
    for (Block* inner : node->blocks()) changed |= run_in(context, steps, inner);
    const ElementwiseStep* step = steps.of(node);
    if (!step) continue;
    if (step->gives_bools) {
      context.declined(node, "others read its bools");
      continue;
    }
    Group group(steps, node);
    if (!group.is_worth_it()) {
      context.declined(node, "no elementwise op stands before it that it could share a pass over memory with");
      continue;
    }
    taken.insert(group.nodes().begin(), group.nodes().end());
    group.rewrite(context);
    changed = true;
  }
  return changed;
}

// Whether `value` is a norm of `x` that keeps its dimensions, or such a norm and no less than a number. Then it has the dtype of
// x, and can be expanded to it: of another tensor, neither is known. One without dimensions doesn't promote unless expanded.
bool is_norm_of(const Value* value, const Value* x, const Node* reader) {
  static const OpName clamp_min("aten::clamp_min"), vector_norm("aten::linalg_vector_norm"),
      norm("aten::norm.ScalarOpt_dim");
  const Node* node = value->node();
  if (clamp_min.is_of(node)) node = node->input(0)->node();
  if ((!vector_norm.is_of(node) && !norm.is_of(node)) || node->input(0) != x ||
      node->owningBlock() != reader->owningBlock() || written_between(node, reader)) {
    return false;
  }
  const auto keeps_dimensions = torch::jit::toIValue(node->namedInput("keepdim"));
  return keeps_dimensions && keeps_dimensions->toBool() &&
         (norm.is_of(node) || node->namedInput("dtype")->mustBeNone());
}

// Arithmetic reads such a norm itself in place of `expand_as` of its other operand. The strides of its result follow from the
// same numbers.
bool remove_expansions(Block* block) {
  static const OpName expand_as("aten::expand_as");
  static const OpName arithmetic[] = {OpName("aten::add.Tensor"), OpName("aten::sub.Tensor"),
                                      OpName("aten::mul.Tensor"), OpName("aten::div.Tensor")};
  bool changed = false;
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) changed |= remove_expansions(inner);
    const auto is_of = [&](const OpName& name) { return name.is_of(node); };
    if (!std::any_of(std::begin(arithmetic), std::end(arithmetic), is_of)) continue;
    Node* expansion = node->input(1)->node();
    if (!expand_as.is_of(expansion) || expansion->input(1) != node->input(0) ||
        !is_norm_of(expansion->input(0), node->input(0), node)) {
      continue;
    }
    node->replaceInput(1, expansion->input(0));
    if (!expansion->output()->hasUses()) expansion->destroy();
    changed = true;
  }
  return changed;
}

bool run(Context& context) {
  const bool changed = remove_expansions(context.graph->block());
  const ElementwiseSteps steps(context.graph);
  return run_in(context, steps, context.graph->block()) || changed;
}

}  // namespace

Pass fuse_elementwise() { return {"fuse_elementwise", run}; }

}  // namespace ipex::passes
