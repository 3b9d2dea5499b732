// keep_channels_last: a stretch of convolutions hands its activations on as the kernels write them, channels-last, and
// converts once where it begins and once where it ends.
//
//   before   %y = ipex::convolution_run(%x, .., %eager_layout=1)
//            %p = aten::max_pool2d(%y, ..)
//            %f = aten::flatten(%p, ..)
//   after    %l = ipex::is_channels_last(%x, %spatial_rank)
//            %c = ipex::to_channels_last(%x, %spatial_rank)
//            %y = ipex::convolution_run(%c, .., %eager_layout=%l)
//            %p = aten::max_pool2d(%y, ..)
//            %r = ipex::restore_layout(%p, %l)
//            %f = aten::flatten(%r, ..)
//
// Without this pass every convolution_run converts back to what eager would give. A stretch grows from a convolution's
// input through ops that compute the same in any layout and hand it on. Where its root, the tensor it begins with, is
// contiguous, so is all of it in eager: this is what restore_layout gives back. Where the root is channels-last there
// is nothing to save, and each convolution does as eager does.
// A piece of channels or of the image stays in the stretch; the one that a reader outside gets is cut from the tensor that
// it would get. So does a cast: where there is nothing to convert it is the tensor itself, also to readers outside.
// Where channels are shuffled, and at an instance_norm, a stretch ends and another begins: whatever the layout was before,
// eager's result is contiguous.
// What only moves dimensions on the way to a tensor that is made contiguous takes a member as it is: contiguous is contiguous.
// Where nobody sees the strides (stride_readers.h), eager's layout does not matter: all such members are of one stretch
// without a root, which sums and products with tensors from outside join, and what leaves it is only made contiguous for
// readers that gain by it. A member that the model itself makes contiguous there is left as it is, and so are tokens that
// it lays out as an image for convolutions and pools alone.
// A value stays outside when somebody writes to it (the copy would not see that), or when the weight itself is
// channels-last (then eager's result is too, and there is nothing to convert). A graph in which memory is overwritten
// that others may share (aliasing.h) is left alone.
#include <torch/csrc/jit/ir/constants.h>

#include <map>
#include <unordered_map>
#include <unordered_set>

#include "aliasing.h"
#include "anchor.h"
#include "casts.h"
#include "constants.h"
#include "graph_walk.h"
#include "layout/loosen_views.h"
#include "passes.h"
#include "stride_readers.h"

namespace ipex::passes {
namespace {

using torch::jit::WithInsertPoint;

// Modes of padding other than "constant" copy as they like.
bool pads_with_a_constant(const Node* node) {
  static const OpName pad("aten::pad");
  if (!pad.is_of(node)) return false;
  const auto mode = torch::jit::toIValue(node->input(2));
  return mode && mode->isString() && mode->toStringRef() == "constant";
}

bool hands_layout_on(const Node* node) {
  return has_trait(node, trait::any_layout) || cast_of(node->output()) || pads_with_a_constant(node);
}

// A piece is a member of the stretch; what a reader outside gets is cut from the tensor that it would get.
bool is_piece(const Node* node) { return has_trait(node, trait::cuts); }

// Whether a stretch of images of this rank can begin at the node.
bool begins_stretch(const Node* node, int64_t spatial_rank) {
  static const OpName shuffle("ipex::channel_shuffle");
  return has_trait(node, trait::contiguous_in_eager) &&
         (spatial_rank == 2 || (spatial_rank == 3 && !shuffle.is_of(node)));
}

void set_argument_if_there(Node* node, const char* name, Value* value) {
  const auto index = node->schema().argumentIndexWithName(name);
  if (index) node->replaceInput(static_cast<size_t>(*index), value);
}

// The op that cuts a tensor into the slices that this node names.
Node* slicing_of(Node* node) {
  if (node->kind() != c10::prim::ListUnpack) return nullptr;
  Node* slicing = node->input()->node();
  return has_trait(slicing, trait::slices) && slicing->output()->uses().size() == 1 &&
                 slicing->owningBlock() == node->owningBlock()
             ? slicing
             : nullptr;
}

// What every convolution in a stretch has in common: the tensor that it begins with, and the rank of its images. Without
// a tensor, nobody sees the strides of what is in the stretch.
struct Root {
  Value* value = nullptr;
  int64_t spatial_rank = 0;

  auto operator<=>(const Root&) const = default;
  explicit operator bool() const { return spatial_rank > 0; }
};

// What was put before the first convolution of a stretch.
struct Entry {
  Value* converted = nullptr;
  Value* is_channels_last = nullptr;
};

class Stretches {
 public:
  Stretches(Block* block, const OverwrittenValues& overwritten, const StrideReaders& readers)
      : block_(block), overwritten_(overwritten), readers_(readers) {}

  void find() {
    for (Node* node : block_->nodes()) {
      const Root root = root_of_results(node);
      for (size_t i = 0; root && i < node->outputs().size(); ++i) {
        root_of_[node->output(i)] = root;
        members_.push_back(node->output(i));
      }
    }
  }

  // Members that are made contiguous though nobody sees their strides are read as they are. Whether there were any.
  bool drop_copies(Context& context) const {
    static const OpName contiguous("aten::contiguous");
    bool changed = false;
    for (Value* member : members_) {
      for (const Use& use : std::vector<Use>(member->uses())) {
        Node* copy = use.user;
        if (!contiguous.is_of(copy) || copy->owningBlock() != block_ || !is_unseen(copy) ||
            overwritten_.contain(copy->output()) || overwritten_.contain(member)) {
          continue;
        }
        context.applied(copy, "removed: nobody sees its strides");
        copy->output()->replaceAllUsesWith(member);
        copy->destroy();
        changed = true;
      }
    }
    return changed;
  }

  void convert(Context& context) {
    for (Value* member : members_) {
      if (const auto anchor = Anchor::producing(member)) enter(*anchor, context);
      if (joins_tensors_from_outside(member->node())) take_in(member->node(), member);
      if (has_trait(member->node(), trait::contiguous_in_eager)) begin(member, context);
    }
    for (Value* member : members_) leave(member);
  }

  const std::vector<Value*>& members() const { return members_; }

 private:
  Root root_of(const Value* value) const {
    const auto found = root_of_.find(value);
    return found == root_of_.end() ? Root() : found->second;
  }

  // The root of the stretch that this node's results belong to. None when they belong to none.
  Root root_of_results(Node* node) const {
    const auto is_written = [&](const Value* result) { return overwritten_.contain(result); };
    if (std::any_of(node->outputs().begin(), node->outputs().end(), is_written)) return {};
    if (Node* slicing = slicing_of(node)) return root_of(slicing->input(0));
    if (node->outputs().size() != 1) return {};
    if (has_trait(node, trait::contiguous_in_eager)) {
      const int64_t rank = root_of(node->input(0)).spatial_rank;
      return begins_stretch(node, rank) ? Root{node->output(), rank} : Root();
    }
    if (const auto anchor = Anchor::producing(node->output())) return root_of_convolution(*anchor);
    if (!hands_layout_on(node) && !is_piece(node)) return {};
    const Root root = joins_tensors_from_outside(node) ? root_of_any(node->inputs()) : common_root(node);
    // An image that has no batch is no volume.
    static const OpName max_pool3d("aten::max_pool3d"), avg_pool3d("aten::avg_pool3d");
    const bool is_of_volumes = max_pool3d.is_of(node) || avg_pool3d.is_of(node);
    return is_of_volumes && root.spatial_rank != 3 ? Root() : root;
  }

  bool is_unseen(const Node* node) const { return node->outputs().size() == 1 && !readers_.see(node->output()); }

  // Whether the node computes element by element of a member and of tensors that are none, and nobody sees the strides.
  bool joins_tensors_from_outside(const Node* node) const {
    const auto may_be_copied = [&](const Value* value) {
      return !value->type()->isSubtypeOf(*c10::ListType::ofTensors()) && !overwritten_.contain(value);
    };
    return has_trait(node, trait::promotes | trait::any_layout) && is_unseen(node) &&
           std::all_of(node->inputs().begin(), node->inputs().end(), may_be_copied);
  }

  // The stretch without a root that a member among these tensors leads to.
  Root root_of_any(at::ArrayRef<Value*> values) const {
    for (const Value* value : values) {
      if (const Root root = root_of(value)) return {nullptr, root.spatial_rank};
    }
    return {};
  }

  // The root that the tensors which a node reads, in lists too, have in common.
  Root common_root(Node* node) const { return common_root(node->inputs(), is_unseen(node)); }

  // Contiguous constants have any. Different ones do where nobody sees the strides.
  Root common_root(at::ArrayRef<Value*> values, bool unseen) const {
    Root root;
    for (Value* value : values) {
      const bool is_list = value->type()->isSubtypeOf(*c10::ListType::ofTensors());
      if (!is_list && (!has_tensor_type(value) || is_contiguous_constant(value))) continue;
      if (is_list && value->node()->kind() != c10::prim::ListConstruct) return {};
      const Root own = is_list ? common_root(value->node()->inputs(), unseen) : root_of(value);
      if (!own || (root && root.spatial_rank != own.spatial_rank)) return {};
      if (root && root != own && !unseen) return {};
      root = root && root != own ? Root{nullptr, own.spatial_rank} : own;
    }
    return root;
  }

  static bool is_contiguous_constant(const Value* value) {
    const auto constant = torch::jit::toIValue(value);
    return constant && constant->isTensor() && constant->toTensor().is_contiguous();
  }

  Root root_of_convolution(const Anchor& anchor) const {
    const int64_t rank = anchor.spatial_rank();
    if (rank == 0) return {};
    if (is_unseen(anchor.run())) {
      const bool may_be_copied = root_of(anchor.input()) || !overwritten_.contain(anchor.input());
      return may_be_copied ? Root{nullptr, rank} : Root();
    }
    const at::Tensor weight = torch::jit::toIValue(anchor.argument("weight"))->toTensor();
    if (weight.suggest_memory_format() != at::MemoryFormat::Contiguous) return {};
    Value* x = anchor.input();
    Root root = root_of(x);
    if (!root && overwritten_.contain(x)) return {};
    if (root.spatial_rank != rank) root = {x, rank};
    // aten takes the layout of its first operand, which for these is the residual.
    static const std::unordered_set<std::string> reversed{"radd", "rsub", "rmul", "rmaximum", "rminimum"};
    const std::vector<std::string> post_ops = anchor.post_ops();
    const bool residual_comes_first =
        std::any_of(post_ops.begin(), post_ops.end(), [](const std::string& name) { return reversed.count(name) > 0; });
    const auto& operands = anchor.operands();
    const bool residuals_stay = std::all_of(operands.begin(), operands.end(), [&](const Value* operand) {
      return root_of(operand) == root || is_contiguous_constant(operand);
    });
    if (residual_comes_first && !residuals_stay) return {};
    return root;
  }

  // Whether all that this reader gives is made contiguous, and so the same in any layout.
  static bool ends_contiguous(const Use& use) {
    static const OpName contiguous("aten::contiguous");
    const Node* node = use.user;
    if (contiguous.is_of(node)) return number(node->input(1)) == static_cast<int>(at::MemoryFormat::Contiguous);
    const Op* op = op_of(node);
    const bool moves_dimensions = op && op->has(trait::chooses) && !op->has(trait::needs_strides) &&
                                  (op->memory == Memory::view || op->memory == Memory::maybe_view);
    if (!moves_dimensions) return false;
    const auto& readers = node->output()->uses();
    return !readers.empty() && std::all_of(readers.begin(), readers.end(), ends_contiguous);
  }

  bool is_member(const Node* node) const {
    return node->owningBlock() == block_ && !node->outputs().empty() && root_of(node->outputs().front());
  }

  // Whether this reader of a member takes it in any layout: it is in a stretch itself, only adds it, or does not look.
  bool takes_any_layout(const Use& use) const {
    const Node* node = use.user;
    if (reads_only_sizes(use) || is_member(node) || ends_contiguous(use)) return true;
    const bool makes_list =
        node->outputs().size() == 1 && node->output()->type()->isSubtypeOf(*c10::ListType::ofTensors());
    const auto is_member_of_list = [&](const Use& reader) { return is_member(reader.user); };
    if (makes_list) {
      const auto& readers = node->output()->uses();
      if (std::all_of(readers.begin(), readers.end(), is_member_of_list)) return true;
      if (!has_trait(node, trait::slices)) return false;
    }
    return !readers_.see(use) && reads_as_fast(use);
  }

  // Whether this reader, for which any strides give the same, takes channels-last as well as contiguous: it computes or
  // sums element by element, or moves the channels to where they are in memory. So do views that all their readers take.
  bool reads_as_fast(const Use& use) const {
    const Node* node = use.user;
    const Op* op = op_of(node);
    if (reads_only_sizes(use) || is_member(node)) return true;
    if (!op || op->has(trait::moves_dimensions) || op->has(trait::reads_any_layout)) return op;
    const bool is_view = op->memory == Memory::view || op->memory == Memory::maybe_view;
    const bool is_elementwise = op->traits & (trait::elementwise | trait::promotes | trait::any_layout);
    const bool hands_on = node->kind() == c10::prim::ListUnpack;
    return (is_view || is_elementwise || hands_on) &&
           std::all_of(node->outputs().begin(), node->outputs().end(), [&](const Value* result) {
             return std::all_of(result->uses().begin(), result->uses().end(),
                                [&](const Use& reader) { return reads_as_fast(reader); });
           });
  }

  // The value channels-last, for the readers from `before` on.
  Value* converted(Value* value, int64_t spatial_rank, Node* before) {
    Value*& known = converted_[{value, spatial_rank}];
    if (known) return known;
    const WithInsertPoint guard(before);
    static const Symbol convert = Symbol::fromQualString("ipex::to_channels_last");
    return known = block_->owningGraph()->insert(convert, {value, spatial_rank});
  }

  // No tensor of the stretch without a root is as eager would have it.
  Value* no() {
    const WithInsertPoint guard(*block_->nodes().begin());
    if (!no_) no_ = block_->owningGraph()->insertConstant(false);
    return no_;
  }

  // Converts what a member of the stretch without a root reads from outside. What is spread over an image is no
  // larger for it.
  void take_in(Node* reader, const Value* member) {
    static const OpName expand("aten::expand"), expand_as("aten::expand_as");
    for (size_t i = 0; i < reader->inputs().size(); ++i) {
      Value* value = reader->input(i);
      const bool is_spread = expand.is_of(value->node()) || expand_as.is_of(value->node());
      const bool stays = is_spread || is_contiguous_constant(value) || overwritten_.contain(value);
      if (!has_tensor_type(value) || root_of(value) || stays) continue;
      reader->replaceInput(i, converted(value, root_of(member).spatial_rank, reader));
    }
  }

  void enter(const Anchor& anchor, Context& context) {
    context.applied(anchor.run(), "stays channels-last");
    const Root root = root_of(anchor.output());
    if (!root.value) {
      anchor.set_eager_layout(no());
      take_in(anchor.run()->input(2)->node(), anchor.output());  // stands before the op itself
      if (!root_of(anchor.input())) {
        anchor.run()->replaceInput(0, converted(anchor.input(), root.spatial_rank, anchor.run()));
      }
      return;
    }
    Entry& entry = entries_[root];
    if (!entry.converted) {
      const WithInsertPoint guard(anchor.run());
      const auto insert = [&](const char* op) {
        return block_->owningGraph()->insert(Symbol::fromQualString(op), {root.value, root.spatial_rank});
      };
      entry.is_channels_last = insert("ipex::is_channels_last");
      entry.converted = insert("ipex::to_channels_last");
    }
    anchor.set_eager_layout(entry.is_channels_last);
    if (anchor.input() == root.value) anchor.run()->replaceInput(0, entry.converted);
  }

  void begin(Value* first, Context& context) {
    Node* node = first->node();
    context.applied(node, "stays channels-last");
    const WithInsertPoint guard(node);
    Value* not_eager = no();
    const Root before = root_of(node->input(0));
    set_argument_if_there(node, "eager_input", before.value ? entries_.at(before).is_channels_last : no());
    set_argument_if_there(node, "eager_layout", not_eager);
    entries_[root_of(first)] = {first, not_eager};
  }

  void leave(Value* member) {
    std::vector<Use> outside;
    for (const Use& use : member->uses()) {
      if (!takes_any_layout(use)) outside.push_back(use);
    }
    if (outside.empty()) return;
    Value* in_eager_layout = restored(member);
    for (const Use& use : outside) use.user->replaceInput(use.offset, in_eager_layout);
  }

  // This member as eager has it.
  Value* restored(Value* member) {
    Value*& known = restored_[member];
    if (known) return known;
    const Root root = root_of(member);
    Node* slicing = root.value ? slicing_of(member->node()) : nullptr;
    if (slicing) {
      return known = slice_of(restored(slicing->input(0)), slicing, member);
    }
    const WithInsertPoint guard(member->node()->next());
    if (root.value && (cast_of(member) || is_piece(member->node()))) {
      Value* whole = restored(member->node()->input(0));
      return known = copy_for(member->node(), member->node()->input(0), whole)->output();
    }
    Value* is_channels_last = root.value ? entries_.at(root).is_channels_last : no();
    known = block_->owningGraph()->insert(Symbol::fromQualString("ipex::restore_layout"), {member, is_channels_last});
    known->node()->setSourceRange(member->node()->sourceRange());
    return known;
  }

  // The slice of `whole` that corresponds to this one.
  Value* slice_of(Value* whole, const Node* slicing, Value* slice) {
    Node* unpack = slice->node();
    const WithInsertPoint guard(unpack->next());
    Node* sliced = copy_for(unpack->input()->node(), slicing->input(0), whole);
    return copy_for(unpack, unpack->input(), sliced->output())->output(slice->offset());
  }

  // The same node once more, with `to` for its input `from`.
  Node* copy_for(Node* node, Value* from, Value* to) {
    return block_->owningGraph()->insertNode(
        block_->owningGraph()->createClone(node, [=](Value* v) { return v == from ? to : v; }));
  }

  Block* block_;
  const OverwrittenValues& overwritten_;
  const StrideReaders& readers_;
  std::unordered_map<const Value*, Root> root_of_;
  std::vector<Value*> members_;  // in the order of the graph
  std::map<Root, Entry> entries_;
  std::map<std::pair<Value*, int64_t>, Value*> converted_;
  Value* no_ = nullptr;
  std::unordered_map<const Value*, Value*> restored_;
};

bool reads_images(const Use& use) {
  static const OpName pools[] = {OpName("aten::max_pool2d"), OpName("aten::avg_pool2d"),
                                 OpName("aten::adaptive_avg_pool2d")};
  if (reads_only_sizes(use)) return true;
  if (use.offset != 0 || use.user->outputs().size() != 1) return false;
  const auto anchor = Anchor::producing(use.user->output());
  return (anchor && anchor->spatial_rank() > 0) ||
         std::any_of(std::begin(pools), std::end(pools), [&](const OpName& pool) { return pool.is_of(use.user); });
}

// Lets convolutions and pools read what was made contiguous for them: they lay it out as they need it, and tokens in rows
// are channels-last as they are.
bool skip_contiguous(Context& context, const OverwrittenValues& overwritten, const StrideReaders& readers) {
  bool changed = false;
  std::vector<Value*> results;
  for_each(context.graph, "aten::contiguous", [&](Node* node) {
    Value *image = node->input(0), *made = node->output();
    const bool is_plain = number(node->input(1)) == static_cast<int>(at::MemoryFormat::Contiguous);
    if (!is_plain || readers.see(made) || overwritten.contain(image) || overwritten.contain(made)) return;
    if (!std::all_of(made->uses().begin(), made->uses().end(), reads_images)) return;
    context.applied(node, "skipped: convolutions and pools read any layout");
    for (const Use& use : made->uses()) {
      for (Value* result : use.user->outputs()) results.push_back(result);
    }
    made->replaceAllUsesWith(image);
    node->destroy();
    changed = true;
  });
  loosen_views(results);
  return changed;
}

bool run(Context& context) {
  if (writes_to_shared_memory(context.graph)) return false;
  std::vector<Block*> blocks;
  std::unordered_set<const Block*> known;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (known.insert(node->owningBlock()).second) blocks.push_back(node->owningBlock());
  });
  bool changed = skip_contiguous(context, OverwrittenValues(context.graph), StrideReaders(context.graph));
  while (true) {
    const OverwrittenValues overwritten(context.graph);
    const StrideReaders readers(context.graph);
    bool drops = false;
    for (Block* block : blocks) {
      Stretches stretches(block, overwritten, readers);
      stretches.find();
      drops |= stretches.drop_copies(context);
    }
    changed |= drops;
    if (drops) continue;  // stretches reach further now
    for (Block* block : blocks) {
      Stretches stretches(block, overwritten, readers);
      stretches.find();
      stretches.convert(context);
      loosen_views(stretches.members());
      changed |= !stretches.members().empty();
    }
    return changed;
  }
}

}  // namespace

Pass keep_channels_last() { return {"keep_channels_last", run}; }

}  // namespace ipex::passes
