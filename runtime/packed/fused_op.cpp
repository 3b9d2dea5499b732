#include "packed/fused_op.h"

#include <ATen/ATen.h>

#include "packed/dtype.h"

namespace ipex::runtime {

std::optional<Spread> spread_of(const at::Tensor& operand, at::IntArrayRef sizes, int64_t channel) {
  if (operand.sizes() == sizes) return Spread::full;
  const int64_t missing = static_cast<int64_t>(sizes.size()) - operand.dim();
  if (missing < 0) return std::nullopt;
  if (operand.numel() == 1) return Spread::all;
  const bool is_per_channel =
      channel >= missing && operand.size(channel - missing) == operand.numel() && operand.numel() == sizes[channel];
  return is_per_channel ? std::optional(Spread::channel) : std::nullopt;
}

namespace {

bool is_addition(const PostOp& op) {
  return op.steps.size() == 1 && op.steps.front().algorithm == dnnl::algorithm::binary_add;
}

}  // namespace

FusedOp::FusedOp(const char* name, const std::vector<std::string>& post_ops, PinnedMathMode math_mode)
    : name_(name),
      post_ops_(parse_post_ops(name, post_ops)),
      operand_count_(operand_count(post_ops_)),
      begins_with_addition_(!post_ops_.empty() && is_addition(post_ops_.front())),
      math_mode_(math_mode) {}

std::vector<std::string> FusedOp::primitive_math_modes() const {
  std::vector<std::string> modes;
  for (const auto& prepared : primitives_.values()) {
    if (*prepared) modes.emplace_back(to_string((*prepared)->math_mode()));
  }
  return modes;
}

std::vector<std::string> FusedOp::primitive_kernels() const {
  std::vector<std::string> kernels;
  for (const auto& prepared : primitives_.values()) {
    if (*prepared) kernels.push_back((*prepared)->kernel());
  }
  return kernels;
}

void FusedOp::check_operands(const std::vector<at::Tensor>& operands) const {
  TORCH_CHECK(operands.size() == operand_count_, name_, ": expected ", operand_count_,
              " operands for its post-ops, got ", operands.size(), ".");
}

FusedPostOps FusedOp::fuse(const std::vector<at::Tensor>& operands, const Result& result,
                           bool (*applies)(const PostOp&)) const {
  FusedPostOps fused;
  for (const PostOp& op : post_ops_) {
    const at::Tensor operand = op.kind->takes_operand() ? operands[fused.operands.size()] : at::Tensor();
    if (!take(op, operand, result, applies(op), fused)) break;
  }
  return fused;
}

bool FusedOp::take(const PostOp& op, const at::Tensor& operand, const Result& result, bool applies,
                   FusedPostOps& fused) const {
  const std::string_view name = op.kind->name;
  std::optional<Spread> spread;
  std::string reason;
  if (!applies) {
    reason = "oneDNN does not give aten's result";
  } else if (op.kind->takes_operand()) {
    spread = spread_of(operand, result.sizes(), result.channel_dimension());
    const bool operand_decides_layout = name == "radd" || name == "rmul" || name == "rsub";
    if (operand.scalar_type() != result.dtype() || !is_plain_cpu(operand)) {
      reason = "its operand is not a " + name_of(result.dtype()) + " CPU tensor";
    } else if (!spread) {
      reason = "its operand is broadcast in a way that oneDNN can't follow";
    } else if (wants_gradient(operand)) {
      reason = "its operand requires a gradient";
    } else if (operand_decides_layout && spread == Spread::full && !result.is_laid_out_like(operand)) {
      reason = "its operand decides the layout of the result";
    }
  }
  if (!reason.empty()) {
    remember(c10::str("post-op ", name, ": ", reason));
    return false;
  }
  ++fused.count;
  if (spread) {
    fused.spreads.push_back(*spread);
    fused.operands.push_back(spread == Spread::full ? result.kernel_view(operand) : operand.contiguous());
  }
  return true;
}

bool FusedOp::adds_in_place(const FusedPostOps& fused, const at::Tensor& dead) {
  // What is laid out in another way was copied.
  return fused.count > 0 && fused.spreads.front() == Spread::full &&
         fused.operands.front().const_data_ptr() == dead.const_data_ptr();
}

at::Tensor FusedOp::apply_rest(at::Tensor y, const std::vector<at::Tensor>& operands, size_t done) const {
  size_t operand = operand_count({post_ops_.begin(), post_ops_.begin() + static_cast<std::ptrdiff_t>(done)});
  for (; done < post_ops_.size(); ++done) {
    const PostOp& op = post_ops_[done];
    y = op.apply(y, op.kind->takes_operand() ? operands[operand++] : at::Tensor());
  }
  return y;
}

}  // namespace ipex::runtime
