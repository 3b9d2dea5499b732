// Channel shuffle, as ShuffleNet spells it: the channels are a table of groups x width, and it is transposed.
//
//   ipex::channel_shuffle(x, split, joined, split_may_copy, eager_input, eager_layout) -> y
//     y = x.view(split).transpose(1, 2).contiguous().view(joined). The first view is a reshape where split_may_copy.
//     In a stretch that runs channels-last (passes/layout), x has eager's layout if eager_input and else is contiguous
//     in eager, and y is wanted channels-last unless eager_layout.
//
// The kernel moves the channels of each pixel, of float32 images that are channels-last. All else is computed as it is
// spelled; a profiler shows that, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// Whether `sizes`, in which one may be -1, are these, of as many elements.
bool are(at::IntArrayRef sizes, at::IntArrayRef expected) {
  return sizes.size() == expected.size() && std::count(sizes.begin(), sizes.end(), -1) <= 1 &&
         std::equal(sizes.begin(), sizes.end(), expected.begin(),
                    [](int64_t a, int64_t b) { return a == b || a == -1; });
}

// How many groups the channels of this image are split into. 0 where the sizes say something else.
int64_t groups_of(const at::Tensor& x, at::IntArrayRef split, at::IntArrayRef joined) {
  if (x.dim() != 4 || x.numel() == 0 || split.size() != 5 || !are(joined, x.sizes())) return 0;
  const int64_t groups = split[1] > 0 ? split[1] : split[2] > 0 ? x.size(1) / split[2] : 0;
  if (groups == 0 || x.size(1) % groups != 0) return 0;
  return are(split, {x.size(0), groups, x.size(1) / groups, x.size(2), x.size(3)}) ? groups : 0;
}

const char* reason_for_aten(const at::Tensor& x, int64_t groups) {
  if (!is_plain_cpu_float(x)) return "it is not a float32 CPU tensor";
  if (wants_gradient(x)) return "it requires a gradient";
  if (groups <= 1 || groups == x.size(1)) return "it does not shuffle channels";
  return nullptr;
}

at::Tensor in_aten(const at::Tensor& x, at::IntArrayRef split, at::IntArrayRef joined, bool split_may_copy) {
  const at::Tensor table = (split_may_copy ? x.reshape(split) : x.view(split)).transpose(1, 2);
  return contiguous_result(table).view(joined);
}

at::Tensor channel_shuffle(const at::Tensor& x, at::IntArrayRef split, at::IntArrayRef joined, bool split_may_copy,
                           bool eager_input, bool eager_layout) {
  if (eager_layout) return in_aten(x, split, joined, split_may_copy);
  constexpr int64_t spatial_rank = 2;
  const int64_t groups = groups_of(x, split, joined);
  if (const char* reason = reason_for_aten(x, groups)) {
    const LeftToAten left(reason, "ipex::channel_shuffle");
    const at::Tensor seen = eager_input ? x : with_format(x, at::MemoryFormat::Contiguous);
    const at::Tensor y = in_aten(seen, split, joined, split_may_copy);
    return y.dim() == spatial_rank + 2 ? contiguous_result(y, channels_last_of(spatial_rank)) : y;
  }
  const at::Tensor image = contiguous_result(x, channels_last_of(spatial_rank));
  const at::Tensor y = empty_result(x.sizes(), x.options().memory_format(channels_last_of(spatial_rank)));
  constexpr int64_t elements_worth_waking = 16384;
  const int64_t channels = x.size(1), pixels = x.numel() / channels;
  const float* from = image.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  parallel_for(pixels, grain_of(pixels, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    kernels().channels.shuffle(from + begin * channels, end - begin, groups, channels / groups, channels / groups,
                               to + begin * channels);
  });
  return y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define(m,
         "channel_shuffle(Tensor(a) x, int[] split, int[] joined, bool split_may_copy, bool eager_input, "
         "bool eager_layout) -> Tensor(a)",
         channel_shuffle);
}

}  // namespace
}  // namespace ipex::runtime
