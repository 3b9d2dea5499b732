// split_layers: in int8, a convolution whose channels are cut into pieces becomes a convolution for each piece.
//
//   before   %y = ipex::convolution_run(%x, %packed, ..)    %list = aten::split(%y, 64, 1)
//            %a, %b = prim::ListUnpack(%list)               %c = aten::cat([%a, %other], 1)
//   after    %a = ipex::convolution_run(%x, %packed.a, ..)    %b = ipex::convolution_run(%x, %packed.b, ..)
//
// As CSP networks and YOLO's blocks have it: one piece goes to layers, and is added to what they make, the other to a
// concatenation. Each is rounded to a scale of its own, by the layer that makes it, and lies in memory as layers want it. Cut out
// of floats, each was read again, rounded or copied.
// Declines where layers alone read the pieces, which are then views of bytes (sites.h); pieces of few channels, or not of whole
// registers, for which the kernels are slow; and groups, operands, and results with eager's layout, whose pieces may show it.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <numeric>

#include "anchor/anchor.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

constexpr int64_t least_channels = 32, channels_of_a_register = 16;

// A convolution, and how its channels are cut.
struct Cut {
  Anchor anchor;
  Node *cut, *unpacked;
  std::vector<int64_t> sizes;
};

// How many channels each piece has. Empty where that is not known.
std::vector<int64_t> sizes_of(const Node* cut, int64_t channels, size_t pieces) {
  static const OpName into_pieces_of("aten::split"), into_sizes("aten::split_with_sizes"), chunk("aten::chunk");
  const auto argument = toIValue(cut->input(1));
  if (!argument || number(cut->input(2)) != 1) return {};
  if (into_sizes.is_of(cut)) return argument->toIntVector();
  if (!argument->isInt() || argument->toInt() <= 0) return {};
  int64_t size = argument->toInt();
  if (chunk.is_of(cut)) {
    size = (channels + size - 1) / size;
  } else if (!into_pieces_of.is_of(cut)) {
    return {};
  }
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < pieces; ++i) sizes.push_back(std::min(size, channels - static_cast<int64_t>(i) * size));
  return sizes;
}

std::optional<Cut> cut_of(const Anchor& anchor) {
  const auto only_reader = [](const Value* value) {
    return value->uses().size() == 1 && value->uses()[0].offset == 0 ? value->uses()[0].user : nullptr;
  };
  Node* cut = only_reader(anchor.output());
  if (!cut || !has_trait(cut, trait::slices) || cut->outputs().size() != 1 || cut->inputs().size() < 3)
    return std::nullopt;
  Node* unpacked = only_reader(cut->output());
  if (!unpacked || unpacked->kind() != c10::prim::ListUnpack) return std::nullopt;
  const auto sizes = sizes_of(cut, anchor.output_channels(), unpacked->outputs().size());
  const bool is_all_of_it = sizes.size() == unpacked->outputs().size() &&
                            std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == anchor.output_channels();
  return is_all_of_it ? std::optional(Cut{anchor, cut, unpacked, sizes}) : std::nullopt;
}

bool is_read_by_layers_alone(const Value* piece) {
  return std::all_of(piece->uses().begin(), piece->uses().end(), [](const Use& use) {
    return use.offset == 0 && use.user->outputs().size() == 1 && Anchor::producing(use.user->output());
  });
}

std::optional<std::string> reason_against(const Cut& it) {
  const auto is_fit = [](int64_t size) { return size >= least_channels && size % channels_of_a_register == 0; };
  if (!std::all_of(it.sizes.begin(), it.sizes.end(), is_fit)) return "a piece has few channels, or no whole registers";
  const Anchor& anchor = it.anchor;
  if (anchor.is_transposed() || number(anchor.argument("groups")) != 1) return "it has groups, or is transposed";
  if (!anchor.operands().empty()) return "its post-ops have operands";
  if (!anchor.argument("vanished")->mustBeNone()) return "a batch_norm of scale 0 is folded into it";
  if (!is_false(anchor.run()->input(3))) return "its result has eager's layout";
  const auto& pieces = it.unpacked->outputs();
  if (std::all_of(pieces.begin(), pieces.end(), is_read_by_layers_alone)) return "layers alone read its pieces";
  const Block* block = anchor.run()->owningBlock();
  if (it.cut->owningBlock() != block || it.unpacked->owningBlock() != block) return "it is cut in another block";
  return std::nullopt;
}

// The convolution of these channels.
Value* of_channels(const Anchor& anchor, int64_t first, int64_t count) {
  Graph& graph = *anchor.run()->owningGraph();
  const torch::jit::WithInsertPoint guard(anchor.run());
  const auto same = [](Value* value) { return value; };
  Node* prepack = graph.insertNode(graph.createClone(anchor.prepack(), same));
  for (const char* name : {"weight", "bias", "folded_scale", "folded_shift"}) {
    const torch::jit::IValue all = *toIValue(anchor.argument(name));
    if (!all.isTensor()) continue;
    const at::Tensor part = all.toTensor().narrow(0, first, count);
    set_argument(prepack, name, part.contiguous(all.toTensor().suggest_memory_format()));
  }
  Node* run = graph.insertNode(graph.createClone(anchor.run(), same));
  run->replaceInput(1, prepack->output());
  return run->output();
}

void rewrite(const Cut& it) {
  int64_t first = 0;
  for (size_t i = 0; i < it.sizes.size(); ++i) {
    Value* piece = of_channels(it.anchor, first, it.sizes[i]);
    piece->copyMetadata(it.unpacked->output(i));
    it.unpacked->output(i)->replaceAllUsesWith(piece);
    first += it.sizes[i];
  }
  it.unpacked->destroy();
  it.cut->destroy();
  it.anchor.run()->destroy();
}

bool run(Context& context) {
  if (!context.options.quantization) return false;
  std::vector<Cut> cuts;  // found first: a rewrite destroys the nodes that follow
  for_each(context.graph, "ipex::convolution_run", [&](Node* node) {
    const auto anchor = Anchor::producing(node->output());
    const auto cut = anchor ? cut_of(*anchor) : std::nullopt;
    if (!cut) return;
    if (const auto reason = reason_against(*cut)) return context.declined(node, *reason);
    context.applied(node, c10::str("computes its ", cut->sizes.size(), " pieces one by one"));
    cuts.push_back(*cut);
  });
  for (const Cut& cut : cuts) rewrite(cut);
  return !cuts.empty();
}

}  // namespace

Pass split_layers() { return {"split_layers", run, needs(full_precision, layers_apart, unobserved)}; }

}  // namespace ipex::passes
