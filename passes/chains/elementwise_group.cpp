#include "chains/elementwise_group.h"

#include <ipex/post_ops.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>

#include "chains/elementwise_casts.h"
#include "chains/elementwise_sums.h"
#include "ir/calls.h"
#include "ir/graph_walk.h"
#include "ir/single_pixel.h"
#include "ir/unseen_write.h"

namespace ipex::passes {
namespace {

// The kernel holds the values of a block in the first cache.
constexpr size_t most_steps = 32, most_inputs = 12;
// So many inputs and steps fit whatever the steps read. More results are written than a core has streams for.
constexpr size_t most_values = 24, most_results = 4;

bool is_choice(const NodeAsPostOp& op) {
  return op.post_op.starts_with("where") || op.post_op.starts_with("masked_fill");
}

bool is_faster(const NodeAsPostOp& op) {
  // The gated image lies in memory that is kept between calls.
  if (op.operands.size() == 1) return is_single_pixel(op.y) != is_single_pixel(op.operands[0]);
  return beats_aten(op.post_op);
}

// Whether the value is repeated along a dimension that it does not have.
bool is_spread(const Value* value) {
  static const OpName slice("aten::slice"), unsqueeze("aten::unsqueeze");
  while (slice.is_of(value->node())) value = value->node()->input(0);
  return unsqueeze.is_of(value->node());
}

// As the positions of rows and of columns are added for each pixel. aten takes such sums in short runs, and lays them out as the
// first operand, so that the reshape copies.
bool is_outer_and_reshaped(const NodeAsPostOp& op, const Node* node) {
  static const OpName reshape("aten::reshape");
  const auto& uses = node->output()->uses();
  return op.operands.size() == 1 && is_spread(op.y) && is_spread(op.operands[0]) &&
         std::any_of(uses.begin(), uses.end(), [](const Use& use) { return reshape.is_of(use.user); });
}

bool is_read_as_bytes(const Node* node) {
  static const OpName quantize("ipex::quantize");
  const auto& uses = node->output()->uses();
  return !uses.empty() &&
         std::all_of(uses.begin(), uses.end(), [](const Use& use) { return quantize.is_of(use.user); });
}

}  // namespace

ElementwiseGroup::ElementwiseGroup(ElementwiseSteps& steps, Node* root) : steps_(steps), root_(root) {
  add(root);
  grow();
  sort();
}

// A producer may have to wait until its other readers are in.
void ElementwiseGroup::grow() {
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
}

void ElementwiseGroup::share() {
  std::unordered_set<const Node*> refused;
  for (bool grows = true; grows;) {
    grows = false;
    for (Value* value : inputs()) {
      Node* node = value->node();
      if (refused.count(node) || !can_share(node)) continue;
      grows = take_in(node);
      if (grows) break;
      refused.insert(node);
    }
  }
  sort();
}

// With all steps that read it, and what they are read by: a value that they need becomes a result only where others want it.
bool ElementwiseGroup::take_in(Node* producer) {
  const std::vector<Node*> before = nodes_;
  const std::vector<Value*> read_before = inputs();
  const auto has_room = [&] { return inputs().size() + nodes_.size() <= most_values; };
  for (Node* next = producer; next && has_room(); next = reader_to_share()) {
    add(next);
    grow();
  }
  // A value that is a result here, and is made of what steps elsewhere read, belongs to them.
  const auto is_shared_elsewhere = [&](const Value* value) {
    const auto& uses = value->uses();
    return std::find(read_before.begin(), read_before.end(), value) == read_before.end() && can_share(value->node()) &&
           std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return can_share(use.user); });
  };
  const std::vector<Value*> read = inputs();
  const bool belongs_elsewhere =
      is_read_outside(producer) && std::any_of(read.begin(), read.end(), is_shared_elsewhere);
  if (has_room() && is_good() && !belongs_elsewhere && !reads_its_followers()) return true;
  nodes_ = before;
  members_ = {before.begin(), before.end()};
  return false;
}

Node* ElementwiseGroup::reader_to_share() const {
  for (const Node* node : nodes_) {
    if (node == root_) continue;
    for (const Use& use : node->output()->uses()) {
      if (can_share(use.user)) return use.user;
    }
  }
  return nullptr;
}

bool ElementwiseGroup::is_worth_it() const {
  const NodeAsPostOp& op = steps_.of(root_)->op;
  const std::vector<Value*> read = inputs();
  return nodes_.size() > 1 || is_read_as_bytes(root_) || dtype_of_all_readers(root_->output()) ||
         std::any_of(read.begin(), read.end(), restoring_cast) || is_choice(op) || is_outer_and_reshaped(op, root_) ||
         is_only_summed(root_->output()) || (is_faster(op) && !separated_op(root_));
}

void ElementwiseGroup::rewrite(Context& context) {
  for (const Node* node : nodes_) {
    if (nodes_.size() == 1) {
      context.became(node, "ipex::elementwise");
    } else {
      context.applied(node, c10::str("one of ", nodes_.size(), " ops in one pass over memory"));
    }
  }
  const std::vector<Value*> read = inputs();
  std::unordered_map<const Value*, size_t> numbers;
  for (const Value* input : read) numbers.emplace(input, numbers.size());
  c10::List<std::string> texts;
  for (Node* node : nodes_) {
    const NodeAsPostOp& op = steps_.of(node)->op;
    std::string text = op.post_op + ' ' + std::to_string(numbers.at(op.y));
    for (const Value* operand : op.operands) text += ' ' + std::to_string(numbers.at(operand));
    texts.push_back(text);
    numbers.emplace(node->output(), numbers.size());
  }
  const std::vector<Node*> given = results(), after = followers();
  Node* last = nodes_.back();
  Graph* graph = last->owningGraph();
  const torch::jit::WithInsertPoint guard(last);
  Value* list = graph->insertNode(graph->createList(c10::TensorType::get(), read))->output();
  Value* steps = graph->insertConstant(texts);
  std::vector<Value*> replacements;
  if (given.size() == 1) {
    replacements.push_back(insert_call(*graph, {"ipex::elementwise", ""}, {list, steps})->output());
  } else {
    std::vector<int64_t> named;
    for (const Node* node : given) named.push_back(static_cast<int64_t>(numbers.at(node->output())));
    Value* numbers_of_results = graph->insertConstant(named);
    Value* all = insert_call(*graph, {"ipex::elementwise", "several"}, {list, steps, numbers_of_results})->output();
    Node* unpack = graph->insertNode(graph->createListUnpack(all, given.size()));
    replacements = unpack->outputs().vec();
    Node* place = unpack;
    for (Node* follower : after) {
      follower->moveAfter(place);
      place = follower;
    }
  }
  for (Value* value : {replacements[0], replacements[0]->node()->input(0)}) {
    value->node()->setSourceRange(last->sourceRange());
    value->node()->setScope(last->scope());
  }
  for (size_t i = 0; i < given.size(); ++i) {
    given[i]->output()->replaceAllUsesWith(replacements[i]);
    replacements[i]->copyMetadata(given[i]->output());
  }
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    const auto result = std::find(given.begin(), given.end(), *node);
    steps_.remove(*node, replacements[result == given.end() ? 0 : static_cast<size_t>(result - given.begin())]);
    (*node)->destroy();
  }
}

std::vector<Value*> ElementwiseGroup::values_read(const Node* node) const {
  const NodeAsPostOp& op = steps_.of(node)->op;
  std::vector<Value*> values{op.y};
  for (Value* operand : op.operands) {
    if (std::find(values.begin(), values.end(), operand) == values.end()) values.push_back(operand);
  }
  return values;
}

void ElementwiseGroup::add(Node* node) {
  nodes_.push_back(node);
  members_.insert(node);
}

void ElementwiseGroup::sort() {
  std::sort(nodes_.begin(), nodes_.end(), [](const Node* a, const Node* b) { return a->isBefore(b); });
}

bool ElementwiseGroup::can_join(const Node* node) const {
  const ElementwiseStep* step = steps_.of(node);
  return step && !members_.count(node) && node->owningBlock() == root_->owningBlock() &&
         step->writes_before == steps_.of(root_)->writes_before && !is_read_outside(node);
}

bool ElementwiseGroup::can_share(const Node* node) const {
  const ElementwiseStep* step = steps_.of(node);
  return step && !members_.count(node) && node->owningBlock() == root_->owningBlock() &&
         step->stretch == steps_.of(root_)->stretch && !is_only_summed(node->output());
}

bool ElementwiseGroup::is_read_outside(const Node* node) const {
  const auto& uses = node->output()->uses();
  return std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return !members_.count(use.user); });
}

bool ElementwiseGroup::is_good() const {
  const std::vector<Node*> given = results();
  return given.size() <= most_results &&
         std::none_of(given.begin(), given.end(), [&](const Node* node) { return steps_.of(node)->gives_bools; });
}

std::vector<Node*> ElementwiseGroup::followers() const {
  const auto is_later = [](const Node* a, const Node* b) { return a->isBefore(b); };
  const std::vector<Node*> given = results();
  Node* node = *std::min_element(given.begin(), given.end(), is_later);
  const Node* last = *std::max_element(nodes_.begin(), nodes_.end(), is_later);
  std::vector<Node*> found;
  std::unordered_set<const Node*> leading = members_;
  for (; node != last; node = node->next()) {
    const auto inputs = node->inputs();
    const auto follows = [&](const Value* input) { return leading.count(input->node()) > 0; };
    if (members_.count(node) || std::none_of(inputs.begin(), inputs.end(), follows)) continue;
    leading.insert(node);
    found.push_back(node);
  }
  return found;
}

bool ElementwiseGroup::reads_its_followers() const {
  const std::vector<Node*> after = followers();
  const std::unordered_set<const Node*> found(after.begin(), after.end());
  const std::vector<Value*> read = inputs();
  return std::any_of(read.begin(), read.end(), [&](const Value* value) { return found.count(value->node()) > 0; });
}

std::vector<Node*> ElementwiseGroup::results() const {
  std::vector<Node*> found;
  std::copy_if(nodes_.begin(), nodes_.end(), std::back_inserter(found),
               [&](const Node* node) { return is_read_outside(node) || !node->output()->hasUses(); });
  return found;
}

std::vector<Value*> ElementwiseGroup::inputs() const {
  std::vector<Value*> found;
  for (const Node* node : nodes_) {
    for (Value* value : values_read(node)) {
      const bool is_new = std::find(found.begin(), found.end(), value) == found.end();
      if (is_new && !members_.count(value->node())) found.push_back(value);
    }
  }
  return found;
}

size_t ElementwiseGroup::inputs_with(const Node* node) const {
  std::vector<Value*> found = inputs();
  std::erase(found, node->output());
  size_t count = found.size();
  for (const Value* value : values_read(node)) {
    count += !members_.count(value->node()) && std::find(found.begin(), found.end(), value) == found.end();
  }
  return count;
}

}  // namespace ipex::passes
