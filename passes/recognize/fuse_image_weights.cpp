// fuse_image_weights: a convolution with a weight for each image stays one of images, not of groups of one image.
//
//   before   %i = aten::reshape(%x, [1, %all_channels, %h, %w])
//            %c = aten::conv2d(%i, %weights, .., %groups)
//            %p = aten::permute(%c, [1, 0, 2, 3])            (or not)
//            %y = aten::view(%p, [%n, %channels, aten::size(%c, 2), aten::size(%c, 3)])
//   after    %y = ipex::image_weights_convolution(%x, [1, %all_channels, %h, %w], %weights, .., %groups, .., %views, %permutes, %n, %channels)
//
// So spell networks whose weights are mixed for each image (conditional and dynamic convolutions) what no convolution
// takes: images are groups of channels. A reshape says nothing about layouts, and made every one of them contiguous; the op sees that
// one image alone needs no reshape, and keeps its layout.
// Declines where the weight is a constant, and where somebody sees the strides: those of several images are contiguous
// in eager, and those of one are the image's.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/size_list.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;
using torch::jit::WithInsertPoint;

// The nodes of a match, from the first reshape to the last; no permutation where it is null.
struct Found {
  Node *gathers, *convolution, *permutes, *spreads;
};

// The one reader that does more than ask for sizes. Null where there are several, or none.
Node* only_reader(const Value* value) {
  Node* found = nullptr;
  for (const Use& use : value->uses()) {
    if (asks_for_sizes(use.user)) continue;
    if (found || use.offset != 0) return nullptr;
    found = use.user;
  }
  return found;
}

bool swaps_images_and_channels(const Node* node) {
  static const OpName permute("aten::permute"), transpose("aten::transpose.int");
  if (permute.is_of(node)) {
    const auto order = toIValue(node->input(1));
    return order && order->toIntVector() == std::vector<int64_t>{1, 0, 2, 3};
  }
  const auto is = [&](size_t i, int64_t dimension) { return constant_integer(node->input(i)) == dimension; };
  return transpose.is_of(node) && ((is(1, 0) && is(2, 1)) || (is(1, 1) && is(2, 0)));
}

// Whether a size, or a list of them, goes into this list alone.
bool goes_into(const Value* size, const Node* list) {
  const auto& uses = size->uses();
  return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    const bool is_element = use.user->kind() == c10::aten::__getitem__;
    return use.user == list || (is_element && goes_into(use.user->output(), list));
  });
}

// Whether all that asks for sizes asks for the list that the reshape is given.
bool are_asked_by(const Node* reshape, const Value* value) {
  const auto& uses = value->uses();
  return std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
    const Node* user = use.user;
    return !asks_for_sizes(user) ||
           (user->outputs().size() == 1 && goes_into(user->output(), reshape->input(1)->node()));
  });
}

std::optional<Found> read(Node* convolution) {
  Node* gathers = convolution->input(0)->node();
  if (!is_reshape(gathers) || only_reader(gathers->output()) != convolution) return std::nullopt;
  const auto gathered = elements_of(gathers->input(1));
  Value* x = gathers->input(0);
  const bool is_one_image = gathered && gathered->size() == 4 && constant_integer((*gathered)[0]) == 1 &&
                            is_size_of((*gathered)[2], x, 2) && is_size_of((*gathered)[3], x, 3);
  if (!is_one_image) return std::nullopt;
  const Value* made = convolution->output();
  Node* next = only_reader(made);
  Node* permutes = next && swaps_images_and_channels(next) ? next : nullptr;
  Node* spreads = permutes ? only_reader(permutes->output()) : next;
  if (!spreads || !is_reshape(spreads)) return std::nullopt;
  const auto spread = elements_of(spreads->input(1));
  const Value* moved = permutes ? permutes->output() : made;
  const auto is_size_of_pixels = [&](size_t d) {
    return is_size_of((*spread)[d], made, d) || is_size_of((*spread)[d], moved, d);
  };
  if (!spread || spread->size() != 4 || !is_size_of_pixels(2) || !is_size_of_pixels(3)) return std::nullopt;
  if (!are_asked_by(spreads, made) || !are_asked_by(spreads, moved)) return std::nullopt;
  const bool in_one_block =
      gathers->owningBlock() == convolution->owningBlock() && spreads->owningBlock() == convolution->owningBlock();
  return in_one_block ? std::optional(Found{gathers, convolution, permutes, spreads}) : std::nullopt;
}

void rewrite(const Found& found) {
  Graph* graph = found.convolution->owningGraph();
  const WithInsertPoint guard(found.spreads);
  std::vector<torch::jit::NamedValue> inputs{found.gathers->input(0), found.gathers->input(1)};
  for (const char* name : {"weight", "bias", "stride", "padding", "dilation", "groups"}) {
    inputs.emplace_back(found.convolution->namedInput(name));
  }
  inputs.emplace_back(false);  // of_batches: aten::conv2d takes an image without one, too
  inputs.emplace_back(found.gathers->kind() == c10::aten::view);
  inputs.emplace_back(found.permutes != nullptr);
  Node* list = found.spreads->input(1)->node();
  inputs.emplace_back(list->input(0));
  inputs.emplace_back(list->input(1));
  replace(found.spreads, graph->insert(Symbol::fromQualString("ipex::image_weights_convolution"), inputs)->node());
}

bool run(Context& context) {
  std::vector<Found> all;
  for_each(context.graph, "aten::conv2d", [&](Node* node) {
    if (toIValue(node->namedInput("weight"))) return;
    if (const auto found = read(node)) all.push_back(*found);
  });
  if (all.empty()) return false;
  const StrideReaders readers(context.graph);
  const OverwrittenValues overwritten(context.graph);
  bool changed = false;
  for (const Found& found : all) {
    const auto inputs = found.convolution->inputs();
    const auto is_overwritten = [&](const Value* value) { return overwritten.contain(value); };
    if (overwritten.contain(found.gathers->input(0)) || overwritten.contain(found.spreads->output()) ||
        std::any_of(inputs.begin(), inputs.end(), is_overwritten)) {
      context.declined(found.convolution, "something is overwritten");
    } else if (readers.see(found.spreads->output())) {
      context.declined(found.convolution, "somebody sees the strides of its result");
    } else {
      context.became(found.convolution, "ipex::image_weights_convolution");
      rewrite(found);
      changed = true;
    }
  }
  return changed;
}

}  // namespace

Pass fuse_image_weights() {
  return {"fuse_image_weights", run, needs(lists_are_values, aten_layers, one_name_per_op, plain_views)};
}

}  // namespace ipex::passes
