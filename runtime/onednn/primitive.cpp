#include "onednn/primitive.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <unordered_map>

namespace ipex::runtime {
namespace {

dnnl::stream& stream() {
  thread_local dnnl::stream stream(engine());
  return stream;
}

at::Tensor bytes(size_t count) { return at::empty({static_cast<int64_t>(count)}, at::kByte); }

// Scratch memory: one buffer per thread, reused by every primitive that runs on it. What exceeds the bound is
// allocated for the call and given back.
at::Tensor scratch(size_t size) {
  constexpr size_t kept_at_most = size_t{8} << 20;
  thread_local at::Tensor kept;
  if (size > kept_at_most) return bytes(size);
  if (!kept.defined() || static_cast<size_t>(kept.numel()) < size) kept = bytes(size);
  return kept;
}

void reorder(const dnnl::memory::desc& from, void* source, const dnnl::memory::desc& to, void* target) {
  thread_count();
  dnnl::memory source_memory(from, engine(), source);
  dnnl::memory target_memory(to, engine(), target);
  dnnl::reorder(source_memory, target_memory).execute(stream(), source_memory, target_memory);
  stream().wait();
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

int thread_count() { return at::get_num_threads(); }

bool is_exact(const PostOp& post_op) {
  // An unpatched relu turns NaN into 0: see docs/decisions/0001-relu-keeps-nan.md.
  return IPEX_ONEDNN_RELU_KEEPS_NAN || post_op.algorithm != dnnl::algorithm::eltwise_relu;
}

dnnl::primitive_attr attributes(const PostOps& post_ops, size_t count, const dnnl::memory::desc& dst) {
  dnnl::post_ops list;
  for (size_t i = 0; i < count; ++i) {
    const PostOp& op = *post_ops[i];
    if (op.takes_operand) {
      list.append_binary(op.algorithm, dst);
    } else {
      list.append_eltwise(op.algorithm, op.alpha, op.beta);
    }
  }
  dnnl::primitive_attr attr;
  attr.set_post_ops(list);
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

bool skip_reference_implementations(dnnl::primitive_desc& desc) {
  const auto is_slow = [](const std::string& name) {
    // Built without gemm kernels, "gemm" stands for a plain loop, whatever follows in the name.
    return name.find("ref") != std::string::npos || (!IPEX_ONEDNN_HAS_GEMM && name.find("gemm:") != std::string::npos);
  };
  while (is_slow(desc.impl_info_str())) {
    if (!desc.next_impl()) return false;
  }
  return true;
}

PackedWeight::PackedWeight(const at::Tensor& plain, dnnl::memory::desc plain_desc,
                           const dnnl::memory::desc& packed_desc)
    : plain_desc_(std::move(plain_desc)), desc_(packed_desc), bytes_(bytes(desc_.get_size())) {
  reorder(plain_desc_, plain.data_ptr(), desc_, bytes_.data_ptr());
}

void PackedWeight::unpack_into(const at::Tensor& plain) const {
  reorder(desc_, bytes_.data_ptr(), plain_desc_, plain.data_ptr());
}

at::Tensor PackedWeight::in_layout(const dnnl::memory::desc& wanted) const {
  if (wanted == desc_) return bytes_;
  return *other_layout_.get(wanted, [&] {
    at::Tensor result = bytes(wanted.get_size());
    reorder(desc_, bytes_.data_ptr(), wanted, result.data_ptr());
    return result;
  });
}

Prepared::Prepared(const dnnl::primitive_desc& desc, bool has_bias, const PostOps& post_ops, size_t fused)
    : primitive_(desc),
      src_(desc.src_desc()),
      weights_(desc.weights_desc()),
      dst_(desc.dst_desc()),
      scratchpad_(desc.scratchpad_desc()) {
  if (has_bias) bias_ = desc.weights_desc(1);
  for (size_t i = 0; i < fused; ++i) {
    if (post_ops[i]->takes_operand) {
      operand_arguments_.push_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(static_cast<int>(i)) | DNNL_ARG_SRC_1);
    }
  }
}

void Prepared::run(const at::Tensor& src, const PackedWeight& weight, const at::Tensor& bias, const at::Tensor& dst,
                   const std::vector<at::Tensor>& operands) const {
  const at::Tensor weight_bytes = weight.in_layout(weights_);
  const auto memory = [](const dnnl::memory::desc& desc, void* data) { return dnnl::memory(desc, engine(), data); };
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, memory(src_, src.data_ptr())},
                                                  {DNNL_ARG_WEIGHTS, memory(weights_, weight_bytes.data_ptr())},
                                                  {DNNL_ARG_DST, memory(dst_, dst.data_ptr())}};
  if (!bias_.is_zero()) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, bias.data_ptr()));
  for (size_t i = 0; i < operand_arguments_.size(); ++i) {
    arguments.emplace(operand_arguments_[i], memory(dst_, operands[i].data_ptr()));
  }
  at::Tensor scratchpad;
  if (const size_t size = scratchpad_.get_size()) {
    scratchpad = scratch(size);
    arguments.emplace(DNNL_ARG_SCRATCHPAD, memory(scratchpad_, scratchpad.data_ptr()));
  }
  primitive_.execute(stream(), arguments);
  stream().wait();
}

}  // namespace ipex::runtime
