// read_images_as_they_lie: a convolution of few input channels, as the first one of a network is, takes its image in any layout.
//
//   before   %c = ipex::to_channels_last(%x, %spatial_rank)    %y = ipex::convolution_run(%c, %packed, ..)
//   after    %y = ipex::convolution_run(%x, %packed, ..)
//
// The kernel reads single numbers, wherever they are (ops/convolution/few_channels.cpp). Where another one computes, the call
// converts.
// Declines where something may write to %x in between.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "anchor/anchor.h"
#include "ir/graph_walk.h"
#include "ir/motion.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// What the kernel takes (FewChannels::gains). Other convolutions, without a decision: there is nothing to say about them.
bool has_few_channels(const Anchor& anchor) {
  constexpr int64_t most_channels = 4, widest_window = 7, widest_stride = 4, most_products = 25, least_results = 8,
                    most_results_of_dense_windows = 32;
  if (anchor.spatial_rank() != 2 || anchor.is_transposed() || anchor.dtype() != at::kFloat) return false;
  const std::vector<int64_t> sizes = toIValue(anchor.argument("weight"))->toTensor().sizes().vec(),
                             stride = toIValue(anchor.argument("stride"))->toIntVector();
  const int64_t results = sizes[0], channels = sizes[1], products = sizes[2] * sizes[3];
  if (toIValue(anchor.argument("groups"))->toInt() != 1 || std::max(sizes[2], sizes[3]) > widest_window) return false;
  if (*std::max_element(stride.begin(), stride.end()) > widest_stride) return false;
  if (channels > most_channels || products == 1 || results < least_results) return false;
  const bool is_dense = std::all_of(stride.begin(), stride.end(), [](int64_t n) { return n == 1; });
  return channels == 1 || (products <= most_products && (!is_dense || results <= most_results_of_dense_windows));
}

bool run(Context& context) {
  bool changed = false;
  for_each(context.graph, "ipex::to_channels_last", [&](Node* conversion) {
    const auto readers = conversion->output()->uses();  // as they are now
    for (const Use& use : readers) {
      const auto anchor =
          use.offset == 0 && use.user->outputs().size() == 1 ? Anchor::producing(use.user->output()) : std::nullopt;
      if (!anchor || !has_few_channels(*anchor)) continue;
      if (!can_wait(conversion, use.user)) {
        context.declined(use.user, "its image may be overwritten");
        continue;
      }
      context.applied(use.user, "reads its image as it lies");
      use.user->replaceInput(0, conversion->input(0));
      changed = true;
    }
  });
  return changed;
}

}  // namespace

Pass read_images_as_they_lie() { return {"read_images_as_they_lie", run}; }

}  // namespace ipex::passes
