#include "layout/stretches.h"

#include <torch/csrc/jit/ir/constants.h>

#include <map>
#include <set>

#include "ir/casts.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/size_list.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

// With other modes the result may have any layout.
bool pads_with_a_constant(const Node* node) {
  static const OpName pad("aten::pad");
  if (!pad.is_of(node)) return false;
  const auto mode = torch::jit::toIValue(node->input(2));
  return mode && mode->isString() && mode->toStringRef() == "constant";
}

bool hands_layout_on(const Node* node) {
  return has_trait(node, trait::any_layout) || cast_of(node->output()) || pads_with_a_constant(node);
}

// An image is a volume without a batch to them, which they refuse in channels-last.
bool pools_volumes(const Node* node) {
  static const OpName pools[] = {OpName("aten::max_pool3d"), OpName("aten::avg_pool3d"), OpName("ipex::max_pool3d"),
                                 OpName("ipex::avg_pool3d")};
  return is_of_any(pools, node);
}

// How many channels an image has that a convolution made, and elementwise ops on it. None where it is not known.
std::optional<int64_t> channels_of(const Value* image) {
  while (true) {
    if (const auto anchor = Anchor::producing(image)) {
      const bool is_known = anchor->spatial_rank() > 0 && !anchor->is_transposed();
      return is_known ? std::optional(torch::jit::toIValue(anchor->argument("weight"))->toTensor().size(0))
                      : std::nullopt;
    }
    const Node* node = image->node();
    const Op* op = op_of(node);
    if (!op || !(op->traits & (trait::elementwise | trait::promotes))) return std::nullopt;
    image = node->input(0);
  }
}

// Whether the constant multiplies each channel of such an image by a number of its own.
bool scales_channels(const Value* constant, const Value* image) {
  if (!is_contiguous_constant(constant)) return false;
  const at::Tensor scale = torch::jit::toIValue(constant)->toTensor();
  const bool is_of_channels = scale.dim() >= 3 && scale.dim() <= 4 && scale.numel() == scale.size(-3);
  return scale.dim() == 0 || (is_of_channels && channels_of(image) == scale.numel());
}

// Whether `value` was given the sizes of this image in a reshape, whose result was permuted perhaps, or scaled.
bool has_sizes_of(Value* value, const Value* image, int64_t dimensions) {
  static const OpName mul("aten::mul.Tensor");
  for (Node* node = value->node(); mul.is_of(node); node = value->node()) {
    if (!scales_channels(node->input(0), image) && !scales_channels(node->input(1), image)) return false;
    value = node->input(scales_channels(node->input(0), image) ? 1 : 0);
  }
  for (int64_t d = 0; d < dimensions; ++d) {
    const Value* size = given_size(value, d);
    const bool has_as_many = size == given_size(value, d - dimensions);
    if (!size || !has_as_many || !is_size_of(size, image, static_cast<size_t>(d))) return false;
  }
  return true;
}

// Whether a stretch of images of this rank can begin at the node.
bool begins_stretch(const Node* node, int64_t spatial_rank) {
  static const OpName shuffle("ipex::channel_shuffle");
  return has_trait(node, trait::contiguous_in_eager) &&
         (spatial_rank == 2 || (spatial_rank == 3 && !shuffle.is_of(node)));
}

}  // namespace

bool is_contiguous_constant(const Value* value) {
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isTensor() && constant->toTensor().is_contiguous();
}

bool is_piece(const Node* node) { return has_trait(node, trait::cuts); }

Node* slicing_of(Node* node) {
  if (node->kind() != c10::prim::ListUnpack) return nullptr;
  Node* slicing = node->input()->node();
  return has_trait(slicing, trait::slices) && slicing->output()->uses().size() == 1 &&
                 slicing->owningBlock() == node->owningBlock()
             ? slicing
             : nullptr;
}

Stretches::Stretches(const std::shared_ptr<Graph>& graph, const OverwrittenValues& overwritten,
                     const StrideReaders& readers)
    : overwritten_(overwritten), readers_(readers) {
  grow(graph->block());
}

void Stretches::grow(Block* block) {
  for (Node* node : block->nodes()) {
    if (node->kind() == c10::prim::Loop) {
      grow_loop(node);
      continue;
    }
    for (Block* inner : node->blocks()) grow(inner);
    const Root root = root_of_results(node);
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      add(node->output(i), node->kind() == c10::prim::If ? root_of_branches(node, i) : root);
    }
  }
}

// What each round returns as a member is one for the next round, too, and whatever the first is given is converted. That
// it returns one may hang on what it is given: so each such value is tried.
void Stretches::grow_loop(Node* loop) {
  Block* body = loop->blocks().front();
  const size_t before = members_.size();
  std::map<size_t, Root> carried;
  std::set<size_t> tried;
  while (true) {
    for (const auto& [i, root] : carried) add(body->inputs().at(i + 1), root);
    grow(body);
    bool changed = false;
    for (size_t i = 0; i < loop->outputs().size(); ++i) {
      const Root returned = root_of(body->outputs().at(i + 1), body);
      const bool passes = returned && !returned.value && may_pass(loop->output(i)) &&
                          may_pass(body->inputs().at(i + 1)) && !overwritten_.contain(loop->input(i + 2));
      if (carried.count(i) && carried.at(i) != returned) {
        carried.erase(i);
        changed = true;
      } else if (passes && tried.insert(i).second) {
        carried[i] = returned;
        changed = true;
      }
    }
    if (!changed) break;
    for (size_t i = before; i < members_.size(); ++i) root_of_.erase(members_[i]);
    members_.resize(before);
  }
  for (const auto& [i, root] : carried) add(loop->output(i), root);
}

void Stretches::add(Value* value, const Root& root) {
  if (!root) return;
  root_of_[value] = root;
  members_.push_back(value);
}

Root Stretches::root_of(const Value* value, const Block* reader) const {
  const auto found = root_of_.find(value);
  const bool ends = found == root_of_.end() || (found->second.value && value->node()->owningBlock() != reader);
  return ends ? Root() : found->second;
}

bool Stretches::take(const Use& use) const {
  const Value* value = use.user->input(use.offset);
  const auto further = passed_on(use);
  if (!further.empty()) return static_cast<bool>(root_of(further.front()));
  const auto own = root_of_.find(value);
  const bool ends = own != root_of_.end() && !root_of(value, use.user->owningBlock());
  return !ends && !use.user->outputs().empty() && root_of(use.user->outputs().front());
}

bool Stretches::sees(const Use& reader) const {
  return readers_.see(reader) || (pools_volumes(reader.user) && !take(reader));
}

bool Stretches::may_pass(const Value* value) const {
  return has_tensor_type(value) && !readers_.see(value) && !overwritten_.contain(value);
}

// Of the result of an if: that of the stretch without a root, where all branches return members of it.
Root Stretches::root_of_branches(const Node* node, size_t result) const {
  if (!may_pass(node->output(result))) return {};
  Root root;
  for (const Block* branch : node->blocks()) {
    const Root own = root_of(branch->outputs().at(result), branch);
    if (!own || own.value || (root && root != own)) return {};
    root = own;
  }
  return root;
}

// The root of the stretch that this node's results belong to. None when they belong to none.
Root Stretches::root_of_results(Node* node) const {
  const auto is_written = [&](const Value* result) { return overwritten_.contain(result); };
  if (std::any_of(node->outputs().begin(), node->outputs().end(), is_written)) return {};
  // A piece whose strides somebody sees is a view of what eager has, which nobody may know of the whole.
  const auto is_seen = [&](const Value* result) { return readers_.see(result); };
  const bool are_seen = std::any_of(node->outputs().begin(), node->outputs().end(), is_seen);
  const auto of_piece = [&](const Root& root) { return are_seen && !root.value ? Root() : root; };
  if (Node* slicing = slicing_of(node)) return of_piece(root_of(slicing->input(0), node->owningBlock()));
  if (node->outputs().size() != 1) return {};
  if (has_trait(node, trait::contiguous_in_eager)) {
    const int64_t rank = root_of(node->input(0), node->owningBlock()).spatial_rank;
    return begins_stretch(node, rank) ? Root{node->output(), rank} : Root();
  }
  if (const auto anchor = Anchor::producing(node->output())) return root_of_convolution(*anchor);
  if (!hands_layout_on(node) && !is_piece(node)) return {};
  const Root root = joins_tensors_from_outside(node) ? root_of_any(node)
                    : follows_first(node)            ? root_of(node->input(0), node->owningBlock())
                                                     : common_root(node);
  if (is_piece(node)) return of_piece(root);
  return pools_volumes(node) && root.spatial_rank != 3 ? Root() : root;
}

bool Stretches::joins_tensors_from_outside(const Node* node) const {
  const auto may_be_copied = [&](const Value* value) {
    return !value->type()->isSubtypeOf(*c10::ListType::ofTensors()) && !overwritten_.contain(value);
  };
  return has_trait(node, trait::promotes | trait::any_layout) && is_unseen(node) &&
         std::all_of(node->inputs().begin(), node->inputs().end(), may_be_copied);
}

bool Stretches::follows_first(Node* node) const {
  static const OpName arithmetic[] = {OpName("aten::add.Tensor"), OpName("aten::sub.Tensor"),
                                      OpName("aten::mul.Tensor")};
  if (!is_of_any(arithmetic, node)) return false;
  Value *first = node->input(0), *other = node->input(1);
  const Root root = root_of(first, node->owningBlock());
  return root.value && root.spatial_rank == 2 && !root_of(other, node->owningBlock()) && !overwritten_.contain(other) &&
         has_sizes_of(other, first, root.spatial_rank + 2);
}

// The stretch without a root that a member among these tensors leads to.
Root Stretches::root_of_any(Node* node) const {
  for (const Value* value : node->inputs()) {
    if (const Root root = root_of(value, node->owningBlock())) return {nullptr, root.spatial_rank};
  }
  return {};
}

// The root that the tensors which a node reads, in lists too, have in common.
Root Stretches::common_root(Node* node) const {
  const auto images = has_trait(node, trait::one_image) ? node->inputs().slice(0, 1) : node->inputs();
  return common_root(images, node->owningBlock(), is_unseen(node));
}

// Contiguous constants have any. Different ones do where nobody sees the strides.
Root Stretches::common_root(at::ArrayRef<Value*> values, const Block* reader, bool unseen) const {
  Root root;
  for (Value* value : values) {
    const bool is_list = value->type()->isSubtypeOf(*c10::ListType::ofTensors());
    if (!is_list && (!has_tensor_type(value) || is_contiguous_constant(value))) continue;
    if (is_list && !elements_of(value)) return {};
    const Root own = is_list ? common_root(value->node()->inputs(), reader, unseen) : root_of(value, reader);
    if (!own || (root && root.spatial_rank != own.spatial_rank)) return {};
    if (root && root != own && !unseen) return {};
    root = root && root != own ? Root{nullptr, own.spatial_rank} : own;
  }
  return root;
}

Root Stretches::root_of_convolution(const Anchor& anchor) const {
  const int64_t rank = anchor.spatial_rank();
  const Block* block = anchor.run()->owningBlock();
  if (rank == 0) return {};
  if (is_unseen(anchor.run())) {
    const bool may_be_copied = root_of(anchor.input(), block) || !overwritten_.contain(anchor.input());
    return may_be_copied ? Root{nullptr, rank} : Root();
  }
  const at::Tensor weight = torch::jit::toIValue(anchor.argument("weight"))->toTensor();
  if (weight.suggest_memory_format() != at::MemoryFormat::Contiguous) return {};
  Value* x = anchor.input();
  Root root = root_of(x, block);
  if (!root && overwritten_.contain(x)) return {};
  if (root.spatial_rank != rank) root = {x, rank};
  // One from outside may decide eager's layout: it comes first, or it is larger.
  const auto& operands = anchor.operands();
  const bool residuals_stay = std::all_of(operands.begin(), operands.end(), [&](const Value* operand) {
    return root_of(operand, block) == root || is_contiguous_constant(operand);
  });
  return residuals_stay ? root : Root();
}

}  // namespace ipex::passes
