// keep_channels_last: a stretch of convolutions hands its activations on as the kernels write them, channels-last, and
// converts once where it begins and once where it ends.
//
//   before   %y = ipex::conv2d_run(%x, .., %eager_layout=1)
//            %p = aten::max_pool2d(%y, ..)
//            %f = aten::flatten(%p, ..)
//   after    %l = ipex::is_channels_last(%x)
//            %c = ipex::to_channels_last(%x)
//            %y = ipex::conv2d_run(%c, .., %eager_layout=%l)
//            %p = aten::max_pool2d(%y, ..)
//            %r = ipex::restore_layout(%p, %l)
//            %f = aten::flatten(%r, ..)
//
// Without this pass every conv2d_run converts back to what eager would give. A stretch grows from a convolution's input
// through ops that compute the same in any layout and hand it on. Where its root, the tensor it begins with, is
// contiguous, so is all of it in eager: this is what restore_layout gives back. Where the root is channels-last there
// is nothing to save, and each convolution does as eager does.
// A value stays outside when somebody writes to it (the copy would not see that), or when the weight itself is
// channels-last (then eager's result is too, and there is nothing to convert). A graph in which memory is overwritten
// that others may share (aliasing.h) is left alone.
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <unordered_map>
#include <unordered_set>

#include "aliasing.h"
#include "anchor.h"
#include "graph_walk.h"
#include "passes.h"

namespace ipex::passes {
namespace {

using torch::jit::AliasDb;
using torch::jit::WithInsertPoint;

// Ops of one activation that compute the same in any layout, and give their result the layout of their input.
bool hands_layout_on(const Node* node) {
  static const std::unordered_set<std::string> kinds{
      "aten::relu",       "aten::max_pool2d", "aten::avg_pool2d", "aten::adaptive_avg_pool2d",
      "aten::batch_norm", "aten::sigmoid",    "aten::silu",       "aten::hardswish",
      "aten::hardtanh",   "aten::leaky_relu", "aten::gelu",       "aten::hardsigmoid",
      "aten::tanh",       "aten::relu6"};
  return kinds.count(node->kind().toQualString()) > 0;
}

bool is_add(const Node* node) {
  return node->kind() == c10::aten::add && node->input(1)->type()->isSubtypeOf(*c10::TensorType::get());
}

// What was put before the first convolution of a stretch.
struct Entry {
  Value* converted = nullptr;
  Value* is_channels_last = nullptr;
};

class Stretches {
 public:
  Stretches(Block* block, const AliasDb& aliases) : block_(block), aliases_(aliases) {}

  void find() {
    for (Node* node : block_->nodes()) {
      if (Value* root = root_of_result(node)) {
        root_of_[node->output()] = root;
        members_.push_back(node->output());
      }
    }
  }

  void convert(Recorder& recorder) {
    for (Value* member : members_) {
      if (const auto anchor = Anchor::producing(member)) enter(*anchor, recorder);
    }
    for (Value* member : members_) leave(member);
  }

  bool empty() const { return members_.empty(); }

 private:
  Value* root_of(const Value* value) const {
    const auto found = root_of_.find(value);
    return found == root_of_.end() ? nullptr : found->second;
  }

  // The root of the stretch that this node's result belongs to. Null when it belongs to none.
  Value* root_of_result(Node* node) const {
    if (node->outputs().size() != 1 || aliases_.hasWriters(node->output())) return nullptr;
    if (const auto anchor = Anchor::producing(node->output())) return root_of_convolution(*anchor);
    if (hands_layout_on(node)) return root_of(node->input(0));
    if (is_add(node)) {
      Value* root = root_of(node->input(0));
      return root == root_of(node->input(1)) ? root : nullptr;
    }
    return nullptr;
  }

  Value* root_of_convolution(const Anchor& anchor) const {
    if (anchor.run()->kind() != Symbol::fromQualString("ipex::conv2d_run")) return nullptr;
    const at::Tensor weight = torch::jit::toIValue(anchor.argument("weight"))->toTensor();
    if (weight.suggest_memory_format() == at::MemoryFormat::ChannelsLast) return nullptr;
    Value* x = anchor.input();
    Value* root = root_of(x);
    if (!root && aliases_.hasWriters(x)) return nullptr;
    if (!root) root = x;
    // aten::add takes the layout of its first operand, which for radd is the residual.
    const std::vector<std::string> post_ops = anchor.post_ops();
    const bool residual_comes_first = std::find(post_ops.begin(), post_ops.end(), "radd") != post_ops.end();
    const auto in_this_stretch = [&](const Value* operand) { return root_of(operand) == root; };
    if (residual_comes_first && !std::all_of(anchor.operands().begin(), anchor.operands().end(), in_this_stretch)) {
      return nullptr;
    }
    return root;
  }

  // Whether this reader of a member takes it in any layout: it is in a stretch itself, or only adds it.
  bool takes_any_layout(const Use& use) const {
    const Node* node = use.user;
    if (node->kind() == c10::prim::ListConstruct) {
      return std::all_of(node->output()->uses().begin(), node->output()->uses().end(), [&](const Use& list_use) {
        const Node* reader = list_use.user;
        return reader->outputs().size() == 1 && Anchor::producing(reader->output()) && root_of(reader->output());
      });
    }
    return node->owningBlock() == block_ && node->outputs().size() == 1 && root_of(node->output());
  }

  void enter(const Anchor& anchor, Recorder& recorder) {
    recorder.applied(anchor.run(), "stays channels-last");
    Value* root = root_of(anchor.output());
    Entry& entry = entries_[root];
    if (!entry.converted) {
      const WithInsertPoint guard(anchor.run());
      entry.is_channels_last = block_->owningGraph()->insert(Symbol::fromQualString("ipex::is_channels_last"), {root});
      entry.converted = block_->owningGraph()->insert(Symbol::fromQualString("ipex::to_channels_last"), {root});
    }
    anchor.set_eager_layout(entry.is_channels_last);
    if (anchor.input() == root) anchor.run()->replaceInput(0, entry.converted);
  }

  void leave(Value* member) {
    std::vector<Use> outside;
    for (const Use& use : member->uses()) {
      if (!takes_any_layout(use)) outside.push_back(use);
    }
    if (outside.empty()) return;
    const WithInsertPoint guard(member->node()->next());
    Value* restored = block_->owningGraph()->insert(Symbol::fromQualString("ipex::restore_layout"),
                                                    {member, entries_.at(root_of(member)).is_channels_last});
    restored->node()->setSourceRange(member->node()->sourceRange());
    for (const Use& use : outside) use.user->replaceInput(use.offset, restored);
  }

  Block* block_;
  const AliasDb& aliases_;
  std::unordered_map<const Value*, Value*> root_of_;
  std::vector<Value*> members_;                // in the order of the graph
  std::unordered_map<Value*, Entry> entries_;  // by root
};

bool run(const std::shared_ptr<Graph>& graph, Recorder& recorder) {
  if (writes_to_shared_memory(graph)) return false;
  const AliasDb aliases(graph);
  std::vector<Block*> blocks;
  for_each_node(graph->block(), [&](Node* node) {
    if (std::find(blocks.begin(), blocks.end(), node->owningBlock()) == blocks.end()) {
      blocks.push_back(node->owningBlock());
    }
  });
  bool changed = false;
  for (Block* block : blocks) {
    Stretches stretches(block, aliases);
    stretches.find();
    stretches.convert(recorder);
    changed |= !stretches.empty();
  }
  return changed;
}

}  // namespace

Pass keep_channels_last() { return {"keep_channels_last", run}; }

}  // namespace ipex::passes
