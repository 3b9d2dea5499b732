#include "onednn/primitive.h"

#include "memory/scratch.h"
#include "onednn/no_memory.h"

namespace ipex::runtime {

dnnl::primitive_attr attributes(FP32MathMode math_mode) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  // Set in both cases: a new attribute has what oneDNN's own environment variable says.
  attr.set_fpmath_mode(math_mode == FP32MathMode::BF32 ? dnnl::fpmath_mode::bf16 : dnnl::fpmath_mode::strict);
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

Prepared::Prepared(const dnnl::primitive_desc& desc, bool has_bias, Constants constants)
    : primitive_(make_primitive<dnnl::primitive>(desc)),
      arguments_{
          {DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}, {DNNL_ARG_DST, desc.dst_desc()}},
      weights_(desc.weights_desc()),
      has_bias_(has_bias),
      constants_(std::move(constants)),
      scratchpad_size_(desc.scratchpad_desc().get_size()),
      pieces_(onednn_pieces()) {
  if (has_bias) arguments_.emplace_back(DNNL_ARG_BIAS, desc.weights_desc(1));
  const dnnl::post_ops post_ops = desc.get_primitive_attr().get_post_ops();
  for (int i = 0; i < post_ops.len(); ++i) {
    if (post_ops.kind(i) != dnnl::primitive::kind::binary) continue;
    dnnl::algorithm algorithm;
    dnnl::memory::desc operand;
    post_ops.get_params_binary(i, algorithm, operand);
    arguments_.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1, operand);
  }
  for (const auto& [argument, values] : constants_) {
    const auto type = values.scalar_type() == at::kInt ? dnnl::memory::data_type::s32 : dnnl::memory::data_type::f32;
    arguments_.emplace_back(argument, dnnl::memory::desc({values.numel()}, type, dnnl::memory::format_tag::a));
  }
  if (scratchpad_size_ > 0) arguments_.emplace_back(DNNL_ARG_SCRATCHPAD, desc.scratchpad_desc());
}

FP32MathMode Prepared::math_mode() const {
  const_dnnl_primitive_attr_t attr;
  dnnl_fpmath_mode_t mode;
  dnnl::error::wrap_c_api(dnnl_primitive_desc_get_attr(primitive_.get_primitive_desc(), &attr), "no attributes");
  dnnl::error::wrap_c_api(dnnl_primitive_attr_get_fpmath_mode(attr, &mode), "no math mode");
  return mode == dnnl_fpmath_mode_bf16 ? FP32MathMode::BF32 : FP32MathMode::FP32;
}

std::string Prepared::kernel() const {
  const char* name = nullptr;
  dnnl::error::wrap_c_api(dnnl_primitive_desc_query(primitive_.get_primitive_desc(), dnnl_query_impl_info_str, 0,
                                                    static_cast<void*>(&name)),
                          "no name");
  return name;
}

Failure Prepared::run(const at::Tensor& src, const BlockedWeight& weight, const at::Tensor& bias, const at::Tensor& dst,
                      const std::vector<at::Tensor>& operands) const {
  try {
    execute(src, weight.in_layout(weights_), bias, dst, operands);
    return std::nullopt;
  } catch (const dnnl::error& error) {
    return error.what();
  }
}

Failure Prepared::run(const at::Tensor& src, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& dst,
                      const std::vector<at::Tensor>& operands) const {
  try {
    execute(src, weight, bias, dst, operands);
    return std::nullopt;
  } catch (const dnnl::error& error) {
    return error.what();
  }
}

void Prepared::execute(const at::Tensor& src, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& dst,
                       const std::vector<at::Tensor>& operands) const {
  std::unique_ptr<ExecutionArguments> arguments = spare_->take();
  if (!arguments) {
    arguments = std::make_unique<ExecutionArguments>();
    for (const auto& [argument, desc] : arguments_) {
      arguments->memories.push_back({desc, engine(), DNNL_MEMORY_NONE});
      arguments->list.push_back({argument, arguments->memories.back().get()});
    }
  }
  auto next = arguments->memories.begin();
  const auto pass = [&](const at::Tensor& tensor) { (next++)->set_data_handle(tensor.data_ptr()); };
  for (const at::Tensor* tensor : {&src, &weight, &dst}) pass(*tensor);
  if (has_bias_) pass(bias);
  for (const at::Tensor& operand : operands) pass(operand);
  for (const auto& [argument, values] : constants_) pass(values);
  at::Tensor scratchpad;
  if (scratchpad_size_ > 0) {
    scratchpad = scratch(scratchpad_size_);
    pass(scratchpad);
  }
  const Pieces cut(pieces_);
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream().get(),
                                                 static_cast<int>(arguments->list.size()), arguments->list.data()),
                          "the primitive failed");
  stream().wait();
  spare_->give_back(std::move(arguments));
}

}  // namespace ipex::runtime
