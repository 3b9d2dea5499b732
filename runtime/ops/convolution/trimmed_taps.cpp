// Windows that are wider than the image: without the taps that meet padding alone, brgemm may be right.
#include "ops/convolution/convolution.h"
#include "packed/memory_format.h"

namespace ipex::runtime {

const ConvolutionContext::Algorithm ConvolutionContext::trimmed_taps{
    "trimmed_taps",
    [](const Call& call) {
      return call.layer.taps_to_keep(call.input).empty() ? "oneDNN's kernels are right without it" : nullptr;
    },
    [](Call& call) {
      call.done = call.layer.post_ops().size();
      return call.layer.with_taps(call.layer.taps_to_keep(call.input))
          ->run(call.input, call.operands, call.eager_layout);
    }};

std::vector<LiveTaps> ConvolutionContext::taps_to_keep(const at::Tensor& input) const {
  // Strides of the result follow from the plain weight's, which a single number has lost, and from whether the two ends of
  // the padding differ.
  const bool keeps_format = weight_format() == at::MemoryFormat::Contiguous || weight_sizes()[1] > 1;
  const bool may_trim = dtype() == at::kFloat && geometry_.spatial_rank <= 2 && !geometry_.transposed &&
                        input.dim() == batch_rank() && geometry_.begin == geometry_.end && keeps_format;
  if (!may_trim || !is_brgemm_at_fault(input)) return {};
  const at::DimVector sizes = geometry_.batched_sizes(input);
  std::vector<LiveTaps> taps;
  for (size_t i = 0; i < kernel_rank(); ++i) {
    taps.push_back(geometry_.without_dead_taps(i, sizes, weight_sizes()));
    if (taps.back().begin != taps.back().end || taps.back().begin < 0) return {};
  }
  Ints weight = weight_sizes();
  for (size_t i = 0; i < taps.size(); ++i) weight[2 + i] = taps[i].count;
  return trimmed(taps).is_brgemm_at_fault(sizes, weight) ? std::vector<LiveTaps>() : taps;
}

ConvolutionGeometry ConvolutionContext::trimmed(const std::vector<LiveTaps>& taps) const {
  ConvolutionGeometry made = geometry_;
  for (size_t i = 0; i < taps.size(); ++i) {
    made.begin[i] = taps[i].begin;
    made.end[i] = taps[i].end;
    if (taps[i].count == 1) made.dilation[i] = 1;  // kernels of our own ask for that
  }
  return made;
}

c10::intrusive_ptr<ConvolutionContext> ConvolutionContext::with_taps(const std::vector<LiveTaps>& taps) const {
  PrimitiveKey key;
  for (const auto& [begin, end, from, count] : taps) key.insert(key.end(), {begin, from, count});
  return *with_taps_.get(key, [&] {
    Spec spec = this->spec();
    for (size_t i = 0; i < taps.size(); ++i) {
      spec.weight = spec.weight.narrow(static_cast<int64_t>(2 + i), taps[i].from, taps[i].count);
    }
    spec.weight = with_format(spec.weight, weight_format());
    // The folded batch_norm is only taken out again for images without a batch. The result has the strides of its op.
    spec.is_sum = follows_anchor();
    spec.folded_scale = spec.folded_shift = spec.vanished = at::Tensor();
    return c10::make_intrusive<ConvolutionContext>(spec, trimmed(taps));
  });
}

}  // namespace ipex::runtime
