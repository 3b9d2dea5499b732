// compute_once_per_shape: what hangs on sizes alone is computed when a shape is new, and kept for the calls that follow.
//
//   before   %n = aten::size(%x, %one)
//            %positions = aten::arange(%n, ..)    %angles = aten::mul(%positions, %step)    %table = aten::cos(%angles)
//   after    %n = aten::size(%x, %one)
//            %sizes = prim::ListConstruct(%n)
//            %kept = ipex::recall(%memo, %sizes)
//            %values = prim::If(%kept is not empty)
//              block0: -> %kept
//              block1: %positions = ..   %angles = ..   %table = ..
//                      -> ipex::remember(%memo, %sizes, [%table])
//            %table = prim::ListUnpack(%values)
//
// So masks, positions and tables of sines and of relative places, which language models make in each call. All of them that
// wait for the same size are one group, and stand right behind it.
// Declines where memory is overwritten that others may share. What the graph overwrites or gives to its caller is computed
// anew in each call.
#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/aliasing.h"
#include "ir/escape.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Fewer take as long as the look into the memo.
constexpr size_t ops_worth_keeping = 2;

bool is_int(const Value* value) { return value->type()->isSubtypeOf(*c10::IntType::get()); }

bool is_constant(const Value* value) { return value->node()->kind() == c10::prim::Constant; }

// Whether the same inputs give the same results, and nothing else happens.
bool is_function(const Node* node) {
  if (node->kind() == c10::prim::Constant || makes_list(node)) return true;
  if (!node->blocks().empty() || is_prepack(node) || is_run(node) || may_write(node)) return false;
  if (const Op* op = op_of(node); op ? op->has(trait::carries) : !node->kind().is_aten()) return false;
  return !node->hasSideEffects() && !node->isNondeterministic();
}

// Moves a node before another one of its block, and all that it is computed from with it.
void move_before(Node* node, Node* place) {
  if (node->owningBlock() != place->owningBlock() || !node->isAfter(place)) return;
  for (Value* input : node->inputs()) move_before(input->node(), place);
  node->moveBefore(place);
}

// What hangs on sizes alone, and for which of them each value waits.
class OfSizes {
 public:
  // Where shared memory is overwritten the pass declines all of it; what that is does not hang on who is written.
  OfSizes(const std::shared_ptr<Graph>& graph, bool is_shared) {
    if (!is_shared) overwritten_.emplace(graph);
    for (const Value* input : graph->inputs()) add_size(input);
    for (Node* node : graph->block()->nodes()) {
      if (add_computed(node)) continue;
      for (const Value* output : node->outputs()) add_size(output);
    }
  }

  bool is_computed(const Value* value) const { return computed_.count(value) > 0; }

  // The node after which all of the sizes are known. Null where there are none.
  Node* waits_for(const Value* value) const { return waits_for_.at(value); }

 private:
  // All sizes of one tensor are known as soon as it is, and those of what the model is given from the start.
  void add_size(const Value* value) {
    if (!is_int(value)) return;
    Node* node = const_cast<Node*>(value->node());
    const bool is_of_tensor = asks_for_sizes(node) && !is_computed(node->input(0)) &&
                              std::all_of(node->inputs().begin() + 1, node->inputs().end(), is_constant);
    waits_for_[value] = is_of_tensor ? node->input(0)->node() : node;
  }

  bool add_computed(Node* node) {
    const auto fits = [&](const Value* value) {
      // Only tensors come out of a memo: what is read of a list of them would wait for the list.
      if (value->type()->isSubtypeOf(*c10::ListType::ofTensors()) && !makes_list(node)) return false;
      return !(overwritten_ && overwritten_->contain(value)) && !(has_tensor_type(value) && escapes_.contain(value));
    };
    const auto is_known = [&](const Value* value) { return waits_for_.count(value) > 0; };
    const bool is_given = node->kind() == c10::prim::Constant;
    // Numbers that are read off a tensor come out of no memo: what hangs on them is a group of its own.
    const bool gives_numbers = std::any_of(node->outputs().begin(), node->outputs().end(), is_int);
    const bool reads_tensors = std::any_of(node->inputs().begin(), node->inputs().end(), has_tensor_type);
    if (gives_numbers && reads_tensors) return false;
    if (!is_given && !(is_function(node) && std::all_of(node->inputs().begin(), node->inputs().end(), is_known) &&
                       std::all_of(node->outputs().begin(), node->outputs().end(), fits)))
      return false;
    Node* last = nullptr;
    for (const Value* input : node->inputs()) {
      Node* next = waits_for(input);
      if (next && (!last || next->isAfter(last))) last = next;
    }
    for (const Value* output : node->outputs()) {
      waits_for_[output] = last;
      if (last) computed_.insert(output);
    }
    return true;
  }

  std::optional<OverwrittenValues> overwritten_;
  Escapes escapes_;
  std::unordered_map<const Value*, Node*> waits_for_;
  std::unordered_set<const Value*> computed_;
};

// Ops that wait for the same size.
class Group {
 public:
  // In the order of the graph. Only tensors that ops have made, and views of them: a view of a constant costs nothing.
  void offer(Node* node) {
    const auto& inputs = node->inputs();
    const auto& outputs = node->outputs();
    const bool makes = std::all_of(outputs.begin(), outputs.end(), is_fresh);
    const bool views =
        std::any_of(inputs.begin(), inputs.end(), [&](const Value* input) { return has(input->node()); });
    if (!std::all_of(outputs.begin(), outputs.end(), has_tensor_type) || !(makes || views)) return;
    nodes_.insert(node);
    if (makes) made_.push_back(node);
  }

  bool is_worth_it() const { return made_.size() >= ops_worth_keeping; }
  const Node* first() const { return made_.front(); }
  std::string what() const { return c10::str(made_.size(), " ops once per shape"); }

  // `sizes_of_kept` has, for each value that comes out of a memo, the list of sizes that it was kept by.
  void keep(const OfSizes& of_sizes, Node* size, std::unordered_map<const Value*, Node*>& sizes_of_kept) {
    take_in_numbers(of_sizes);
    std::vector<Node*> nodes(nodes_.begin(), nodes_.end());
    std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->isBefore(b); });
    std::vector<Value*> results;
    for (Node* node : nodes) {
      std::copy_if(node->outputs().begin(), node->outputs().end(), std::back_inserter(results),
                   [&](const Value* output) { return !is_read_here_alone(output); });
    }

    Graph& graph = *nodes.front()->owningGraph();
    const bool is_given = size->kind() == c10::prim::Param;
    const torch::jit::WithInsertPoint guard(is_given ? *graph.block()->nodes().begin() : size->next());
    const auto insert = [&](const char* op, at::ArrayRef<torch::jit::NamedValue> inputs) {
      return graph.insert(Symbol::fromQualString(op), inputs);
    };
    Node* sizes = graph.insertNode(graph.createList(c10::IntType::get(), {}));
    Value* memo = insert("ipex::shape_memo_prepack", {});
    Value* kept = insert("ipex::recall", {memo, sizes->output()});
    Value* is_kept = insert("aten::Bool", {insert("aten::len", {kept})});
    Node* either = graph.insertNode(graph.create(c10::prim::If, {is_kept}, 1));
    either->output()->setType(kept->type());
    either->addBlock()->registerOutput(kept);
    Block* computed = either->addBlock();
    Node* list = computed->appendNode(graph.createList(c10::TensorType::get(), results));
    {
      const torch::jit::WithInsertPoint inside(computed->return_node());
      computed->registerOutput(insert("ipex::remember", {memo, sizes->output(), list->output()}));
    }
    Node* unpack = graph.insertNode(graph.createListUnpack(either->output(), results.size()));
    // Last, as one of them may be the node that all this is inserted before.
    for (Node* node : nodes) add_sizes_of(node, sizes, sizes_of_kept);
    for (Node* node : nodes) node->moveBefore(list);
    for (size_t i = 0; i < results.size(); ++i) {
      unpack->output(i)->copyMetadata(results[i]);
      results[i]->replaceAllUsesAfterNodeWith(unpack, unpack->output(i));
      sizes_of_kept[unpack->output(i)] = sizes;
    }
  }

 private:
  bool has(const Node* node) const { return nodes_.count(const_cast<Node*>(node)) > 0; }

  bool is_read_here_alone(const Value* value) const {
    return std::all_of(value->uses().begin(), value->uses().end(), [&](const Use& use) { return has(use.user); });
  }

  // Sums of sizes, and lists of them, that nobody else needs.
  void take_in_numbers(const OfSizes& of_sizes) {
    std::vector<Node*> left(nodes_.begin(), nodes_.end());
    while (!left.empty()) {
      Node* node = left.back();
      left.pop_back();
      for (Value* input : node->inputs()) {
        Node* maker = input->node();
        if (has(maker) || !of_sizes.is_computed(input) || has_tensor_type(input)) continue;
        const auto& outputs = maker->outputs();
        if (!std::all_of(outputs.begin(), outputs.end(), [&](const Value* v) { return is_read_here_alone(v); }))
          continue;
        nodes_.insert(maker);
        left.push_back(maker);
      }
    }
  }

  // Sees to it that all that the node reads is there before `sizes`, which gets the integers that it hangs on.
  void add_sizes_of(Node* node, Node* sizes, const std::unordered_map<const Value*, Node*>& sizes_of_kept) const {
    for (Value* input : node->inputs()) {
      if (has(input->node())) continue;
      move_before(input->node(), sizes);
      const auto& listed = sizes->inputs();
      if (is_constant(input) || std::count(listed.begin(), listed.end(), input)) continue;
      const auto kept = sizes_of_kept.find(input);
      if (is_int(input)) {
        sizes->addInput(input);
      } else {
        add_sizes_of(kept == sizes_of_kept.end() ? input->node() : kept->second, sizes, sizes_of_kept);
      }
    }
  }

  std::unordered_set<Node*> nodes_;
  std::vector<Node*> made_;
};

bool run(Context& context) {
  const bool is_shared = writes_to_shared_memory(context.graph) || reshapes_in_place(context.graph);
  const OfSizes of_sizes(context.graph, is_shared);
  std::unordered_map<Node*, Group> groups;
  for (Node* node : context.graph->block()->nodes()) {
    if (node->outputs().empty() || !of_sizes.is_computed(node->output(0))) continue;
    groups[of_sizes.waits_for(node->output(0))].offer(node);
  }
  std::erase_if(groups, [](const auto& group) { return !group.second.is_worth_it(); });
  std::vector<Node*> order;
  for (const auto& [size, group] : groups) order.push_back(size);
  std::sort(order.begin(), order.end(), [](const Node* a, const Node* b) { return a->isBefore(b); });
  std::unordered_map<const Value*, Node*> sizes_of_kept;
  for (Node* size : order) {
    Group& group = groups[size];
    if (is_shared) {
      context.declined(group.first(), "memory is overwritten that others may share");
      continue;
    }
    context.applied(group.first(), group.what());
    group.keep(of_sizes, size, sizes_of_kept);
  }
  return !sizes_of_kept.empty();
}

}  // namespace

Pass compute_once_per_shape() { return {"compute_once_per_shape", run, needs(plain_arithmetic)}; }

}  // namespace ipex::passes
