#include "onednn/primitive.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "isa/isa.h"
#include "memory/memory_pages.h"
#include "memory/scratch.h"

namespace ipex::runtime {
namespace {

dnnl::stream& stream() {
  thread_local dnnl::stream stream(engine());
  return stream;
}

at::Tensor bytes(size_t count) { return at::empty({static_cast<int64_t>(count)}, at::kByte); }

void reorder(const dnnl::memory::desc& from, void* source, const dnnl::memory::desc& to, void* target) {
  thread_count();
  dnnl::memory source_memory(from, engine(), source);
  dnnl::memory target_memory(to, engine(), target);
  dnnl::reorder(source_memory, target_memory).execute(stream(), source_memory, target_memory);
  stream().wait();
}

// Of a linear's weight: blocks of some rows and columns, one below the other. Then neither their height nor where one ends
// matters. Of a convolution's whose windows are single pixels: blocks of output channels.
std::optional<Panels> panels_of(const dnnl::memory::desc& desc, const at::Tensor& bytes) {
  using dims = dnnl::memory::dims;
  if (desc.get_data_type() != dnnl::memory::data_type::f32 || desc.get_submemory_offset() != 0) return std::nullopt;
  const auto* data = static_cast<const float*>(bytes.const_data_ptr());
  const dims block = desc.get_inner_blks(), strides = desc.get_strides(), padded = desc.get_padded_dims();
  if (desc.get_ndims() == 2 && desc.get_inner_idxs() == dims{0, 1}) {
    const bool is_one_below_the_other = strides[0] == block[0] * block[1] || padded[0] == block[0];
    if (!is_one_below_the_other || strides[1] != padded[0] * block[1]) return std::nullopt;
    return Panels{data, block[1], strides[1]};
  }
  if (desc.get_ndims() == 4 && desc.get_inner_idxs() == dims{0} && padded[2] == 1 && padded[3] == 1 &&
      strides[1] == block[0] && strides[0] == padded[1] * block[0]) {
    return Panels{data, block[0], strides[0]};
  }
  return std::nullopt;
}

dnnl::memory::desc operand_desc(Spread spread, const dnnl::memory::desc& dst, int channel) {
  if (spread == Spread::full) return dst;
  dnnl::memory::dims sizes(dst.get_ndims(), 1);
  if (spread == Spread::channel) sizes[channel] = dst.get_dims()[channel];
  dnnl::memory::dims strides(sizes.size(), 1);
  for (int i = 0; i < channel; ++i) strides[i] = sizes[channel];
  return {sizes, dst.get_data_type(), strides};
}

}  // namespace

const dnnl::engine& engine() {
  static const dnnl::engine engine = [] {
    isa::prepare_onednn();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

int thread_count() { return at::get_num_threads(); }

bool is_exact(const PostOp& post_op) {
  // An unpatched oneDNN loses NaN: see docs/decisions/0001-activations-keep-nan-and-infinity.md.
  const auto is_arithmetic = [](const Step& s) {
    return s.takes_operand() || s.algorithm == dnnl::algorithm::eltwise_linear;
  };
  return !post_op.steps.empty() &&
         (IPEX_ONEDNN_IS_EXACT || std::all_of(post_op.steps.begin(), post_op.steps.end(), is_arithmetic));
}

dnnl::primitive_attr attributes(FP32MathMode math_mode, const PostOps& post_ops, size_t count,
                                const std::vector<Spread>& spreads, const dnnl::memory::desc& dst, int channel,
                                bool accumulates) {
  dnnl::post_ops list;
  auto spread = spreads.begin();
  for (size_t i = 0; i < count; ++i) {
    for (const Step& step : post_ops[i].steps) {
      if (accumulates && i == 0) {
        list.append_sum();
      } else if (step.takes_operand()) {
        list.append_binary(step.algorithm, operand_desc(*spread++, dst, channel));
      } else {
        list.append_eltwise(step.algorithm, static_cast<float>(step.alpha), static_cast<float>(step.beta));
      }
    }
  }
  dnnl::primitive_attr attr;
  attr.set_post_ops(list);
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

PackedWeight::PackedWeight(const at::Tensor& plain, dnnl::memory::desc plain_desc,
                           const dnnl::memory::desc& packed_desc)
    : plain_desc_(std::move(plain_desc)), desc_(packed_desc), bytes_(bytes(desc_.get_size())) {
  if (desc_.get_ndims() == 2 && plain_desc_.get_strides() == dnnl::memory::dims{1, plain_desc_.get_dims()[0]}) {
    pack_in_pieces(plain);
  } else {
    reorder(plain_desc_, plain.data_ptr(), desc_, bytes_.data_ptr());
  }
  panels_ = panels_of(desc_, bytes_);
}

void PackedWeight::pack_in_pieces(const at::Tensor& plain) {
  using dims = dnnl::memory::dims;
  const int64_t depth = desc_.get_dims()[0], columns = desc_.get_dims()[1];
  const dims blocks = desc_.get_inner_blks(), dimensions = desc_.get_inner_idxs();
  int64_t block = 1;
  for (size_t i = 0; i < blocks.size(); ++i) block *= dimensions[i] == 1 ? blocks[i] : 1;
  constexpr int64_t elements_at_once = 4 << 20;
  const int64_t step = std::max<int64_t>(1, elements_at_once / depth / block) * block;
  const bool is_ours = is_ours_alone(plain);
  for (int64_t first = 0; first < columns; first += step) {
    const dims piece{depth, std::min(step, columns - first)};
    char* source = static_cast<char*>(plain.data_ptr()) + first * depth * plain.itemsize();
    try {
      reorder({piece, plain_desc_.get_data_type(), plain_desc_.get_strides()}, source,
              desc_.submemory_desc(piece, {0, first}), bytes_.data_ptr());
    } catch (const dnnl::error& error) {
      // Whoever catches oneDNN's error goes on with the plain weight, of which the beginning is gone by now.
      TORCH_CHECK(first == 0 || !is_ours, "ipex: oneDNN failed while a weight was packed: ", error.what());
      throw;
    }
    if (is_ours) forget(source, source + piece[0] * piece[1] * plain.itemsize());
  }
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

Prepared::Prepared(const dnnl::primitive_desc& desc, bool has_bias)
    : primitive_(desc),
      arguments_{
          {DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_WEIGHTS, desc.weights_desc()}, {DNNL_ARG_DST, desc.dst_desc()}},
      weights_(desc.weights_desc()),
      has_bias_(has_bias),
      scratchpad_size_(desc.scratchpad_desc().get_size()) {
  if (has_bias) arguments_.emplace_back(DNNL_ARG_BIAS, desc.weights_desc(1));
  const dnnl::post_ops post_ops = desc.get_primitive_attr().get_post_ops();
  for (int i = 0; i < post_ops.len(); ++i) {
    if (post_ops.kind(i) != dnnl::primitive::kind::binary) continue;
    dnnl::algorithm algorithm;
    dnnl::memory::desc operand;
    post_ops.get_params_binary(i, algorithm, operand);
    arguments_.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(i) | DNNL_ARG_SRC_1, operand);
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

void Prepared::run(const at::Tensor& src, const PackedWeight& weight, const at::Tensor& bias, const at::Tensor& dst,
                   const std::vector<at::Tensor>& operands) const {
  run(src, weight.in_layout(weights_), bias, dst, operands);
}

void Prepared::run(const at::Tensor& src, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& dst,
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
  at::Tensor scratchpad;
  if (scratchpad_size_ > 0) {
    scratchpad = scratch(scratchpad_size_);
    pass(scratchpad);
  }
  dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream().get(),
                                                 static_cast<int>(arguments->list.size()), arguments->list.data()),
                          "the primitive failed");
  stream().wait();
  spare_->give_back(std::move(arguments));
}

}  // namespace ipex::runtime
