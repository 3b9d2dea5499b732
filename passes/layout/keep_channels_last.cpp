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
// What is computed of a member and an image of tokens that has its sizes lies as the member does, which comes first.
// What only moves dimensions on the way to a tensor that is made contiguous takes a member as it is: contiguous is contiguous.
// Where nobody sees the strides (stride_readers.h), eager's layout does not matter: all such members are of one stretch
// without a root, which sums and products with tensors from outside join, and what leaves it is only made contiguous for
// readers that gain by it. A member that the model itself makes contiguous there is left as it is, and so are tokens that
// it lays out as an image for convolutions and pools alone.
// That stretch goes on into the blocks of ifs and loops and out of them: what all branches return as members, and what each
// round of a loop does, is one afterwards; what the first round is given is converted.
// A value stays outside when somebody writes to it (the copy would not see that), or when the weight itself is
// channels-last (then eager's result is too, and there is nothing to convert). A graph in which memory is overwritten
// that others may share (aliasing.h) is left alone.
#include <map>

#include "ir/casts.h"
#include "ir/graph_walk.h"
#include "ir/single_pixel.h"
#include "layout/image_readers.h"
#include "layout/loosen_views.h"
#include "layout/release_residuals.h"
#include "layout/skip_copies.h"
#include "layout/stretches.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::WithInsertPoint;

void set_argument_if_there(Node* node, const char* name, Value* value) {
  const auto index = node->schema().argumentIndexWithName(name);
  if (index) node->replaceInput(static_cast<size_t>(*index), value);
}

// Where a value is converted for this reader: not in each round of a loop that stands after it.
Node* out_of_loops(const Value* value, Node* reader) {
  Node* owner = reader->owningBlock()->owningNode();
  const bool is_inside =
      owner && owner->kind() == c10::prim::Loop && value->node()->owningBlock() != reader->owningBlock();
  return is_inside ? out_of_loops(value, owner) : reader;
}

// What was put before the first convolution of a stretch.
struct Entry {
  Value* converted = nullptr;
  Value* is_channels_last = nullptr;
};

// Puts the conversions where stretches begin and end, in one block.
class Conversion {
 public:
  Conversion(const Stretches& stretches, Block* block, const std::vector<Value*>& members)
      : stretches_(stretches), block_(block), members_(members) {}

  void run(Context& context) {
    for (Value* member : members_) {
      if (member->node()->kind() == c10::prim::Loop) begin_loop(member);
      if (const auto anchor = Anchor::producing(member)) enter(*anchor, context);
      if (stretches_.joins_tensors_from_outside(member->node())) take_in(member->node(), member);
      if (has_trait(member->node(), trait::contiguous_in_eager)) begin(member, context);
      // Whose result of rows is contiguous in eager: a norm of groups.
      const bool is_free = has_trait(member->node(), trait::any_layout) && !root_of(member).value;
      if (is_free) set_argument_if_there(member->node(), "eager_layout", no());
    }
    for (Value* member : members_) leave(member);
  }

 private:
  Root root_of(const Value* value) const { return stretches_.root_of(value, block_); }
  Graph* graph() const { return block_->owningGraph(); }

  // The value channels-last, for the readers from `before` on.
  Value* converted(Value* value, int64_t spatial_rank, Node* before) {
    Value*& known = converted_[{value, spatial_rank}];
    if (known) return known;
    const WithInsertPoint guard(out_of_loops(value, before));
    static const Symbol convert = Symbol::fromQualString("ipex::to_channels_last");
    return known = graph()->insert(convert, {value, spatial_rank});
  }

  // No tensor of the stretch without a root is as eager would have it.
  Value* no() {
    const WithInsertPoint guard(*block_->nodes().begin());
    if (!no_) no_ = graph()->insertConstant(false);
    return no_;
  }

  // Converts what a member of the stretch without a root reads from outside. What is spread over an image is no
  // larger for it, and a single pixel lies in any layout.
  void take_in(Node* reader, const Value* member) {
    static const OpName expand("aten::expand"), expand_as("aten::expand_as");
    for (size_t i = 0; i < reader->inputs().size(); ++i) {
      Value* value = reader->input(i);
      const bool is_spread = expand.is_of(value->node()) || expand_as.is_of(value->node());
      const bool stays =
          is_spread || is_contiguous_constant(value) || is_single_pixel(value) || stretches_.is_overwritten(value);
      if (!has_tensor_type(value) || root_of(value) || stays) continue;
      reader->replaceInput(i, converted(value, root_of(member).spatial_rank, reader));
    }
  }

  // Converts what the first round is given.
  void begin_loop(const Value* member) {
    Node* loop = const_cast<Node*>(member->node());
    const size_t given = member->offset() + 2;
    if (root_of(loop->input(given))) return;
    loop->replaceInput(given, converted(loop->input(given), root_of(member).spatial_rank, loop));
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
        return graph()->insert(Symbol::fromQualString(op), {root.value, root.spatial_rank});
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
      if (!takes_any_layout(stretches_, use)) outside.push_back(use);
    }
    // A cast of nothing is the tensor itself, also where readers of that one get it as eager has it.
    const bool is_given_out = cast_of(member) && restored_.count(member->node()->input(0));
    if (outside.empty() && !is_given_out) return;
    // Where there is a contiguous one, `contiguous` gives it itself, as in eager.
    static const OpName contiguous("aten::contiguous");
    for (const Use& use : member->uses()) {
      if (contiguous.is_of(use.user)) outside.push_back(use);
    }
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
    // After what the body of a loop is given, and the constant.
    const bool is_given = member->node()->kind() == c10::prim::Param;
    const WithInsertPoint guard(is_given ? no()->node()->next() : member->node()->next());
    if (root.value && (cast_of(member) || is_piece(member->node()))) {
      Value* whole = restored(member->node()->input(0));
      return known = copy_for(member->node(), member->node()->input(0), whole)->output();
    }
    Value* is_channels_last = root.value ? entries_.at(root).is_channels_last : no();
    known = graph()->insert(Symbol::fromQualString("ipex::restore_layout"), {member, is_channels_last});
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
    return graph()->insertNode(graph()->createClone(node, [=](Value* v) { return v == from ? to : v; }));
  }

  const Stretches& stretches_;
  Block* block_;
  const std::vector<Value*>& members_;  // of the block
  std::map<Root, Entry> entries_;
  std::map<std::pair<Value*, int64_t>, Value*> converted_;
  Value* no_ = nullptr;
  std::unordered_map<const Value*, Value*> restored_;
};

using MembersByBlock = std::unordered_map<const Block*, std::vector<Value*>>;

// Inner blocks first: what these ask of an outer member, as eager has it, counts as a reader outside.
void convert(const Stretches& stretches, Block* block, MembersByBlock& members, Context& context) {
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) convert(stretches, inner, members, context);
  }
  Conversion(stretches, block, members[block]).run(context);
}

bool run(Context& context) {
  if (writes_to_shared_memory(context.graph)) return false;
  bool changed = skip_copies_for_images(context);
  while (true) {
    const OverwrittenValues overwritten(context.graph);
    const StrideReaders readers(context.graph);
    const Stretches stretches(context.graph, overwritten, readers);
    if (skip_copies(context, stretches) || release_residuals(context, stretches)) {
      changed = true;
      continue;  // stretches reach further now
    }
    MembersByBlock members;
    for (Value* member : stretches.members()) members[member->node()->owningBlock()].push_back(member);
    convert(stretches, context.graph->block(), members, context);
    loosen_views(stretches.members());
    return changed || !stretches.members().empty();
  }
}

}  // namespace

Pass keep_channels_last() {
  return {"keep_channels_last", run,
          needs(aten_names, layers_apart, one_name_per_op, plain_arithmetic, plain_views) + breaks(eager_layouts)};
}

}  // namespace ipex::passes
