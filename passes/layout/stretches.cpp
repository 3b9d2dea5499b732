#include "layout/stretches.h"

#include <torch/csrc/jit/ir/constants.h>

#include <unordered_set>

#include "casts.h"
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

Stretches::Stretches(Block* block, const OverwrittenValues& overwritten, const StrideReaders& readers)
    : block_(block), overwritten_(overwritten), readers_(readers) {
  for (Node* node : block_->nodes()) {
    const Root root = root_of_results(node);
    for (size_t i = 0; root && i < node->outputs().size(); ++i) {
      root_of_[node->output(i)] = root;
      members_.push_back(node->output(i));
    }
  }
}

Root Stretches::root_of(const Value* value) const {
  const auto found = root_of_.find(value);
  return found == root_of_.end() ? Root() : found->second;
}

// The root of the stretch that this node's results belong to. None when they belong to none.
Root Stretches::root_of_results(Node* node) const {
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

bool Stretches::joins_tensors_from_outside(const Node* node) const {
  const auto may_be_copied = [&](const Value* value) {
    return !value->type()->isSubtypeOf(*c10::ListType::ofTensors()) && !overwritten_.contain(value);
  };
  return has_trait(node, trait::promotes | trait::any_layout) && is_unseen(node) &&
         std::all_of(node->inputs().begin(), node->inputs().end(), may_be_copied);
}

// The stretch without a root that a member among these tensors leads to.
Root Stretches::root_of_any(at::ArrayRef<Value*> values) const {
  for (const Value* value : values) {
    if (const Root root = root_of(value)) return {nullptr, root.spatial_rank};
  }
  return {};
}

// The root that the tensors which a node reads, in lists too, have in common.
Root Stretches::common_root(Node* node) const { return common_root(node->inputs(), is_unseen(node)); }

// Contiguous constants have any. Different ones do where nobody sees the strides.
Root Stretches::common_root(at::ArrayRef<Value*> values, bool unseen) const {
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

Root Stretches::root_of_convolution(const Anchor& anchor) const {
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

}  // namespace ipex::passes
