// fuse_channel_shuffle: the channel shuffle that ShuffleNet spells out is one op.
//
//   before   %v = aten::view(%x, [%batch, %groups, %width, %h, %w])
//            %t = aten::transpose(%v, 1, 2)
//            %c = aten::contiguous(%t)
//            %y = aten::view(%c, [%batch, %channels, %h, %w])
//   after    %y = ipex::channel_shuffle(%x, %split, %joined, ..)
//
// Each view may be a reshape. The op looks at the sizes when it runs; alone it is no faster than what was spelled out, but
// it can be part of a stretch that runs channels-last.
// Declines when other dimensions are swapped, and when somebody reads a value in between. Without aten::contiguous it is
// something else: a reshape may give a view, in the layout of %x.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/lists.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Whether both of the dimensions that channels become may have more than one element: else nothing is moved, and in
// eager the result is a view of %x.
bool splits_channels(const Value* sizes) {
  constexpr size_t length = 5;
  if (const auto constant = torch::jit::toIValue(sizes)) {
    if (!constant->isIntList()) return false;
    const std::vector<int64_t> list = constant->toIntVector();
    return list.size() == length && list[1] != 1 && list[2] != 1;
  }
  const auto elements = elements_of(sizes);
  return elements && elements->size() == length && torch::jit::toIValue(elements->at(1)) != torch::jit::IValue(1) &&
         torch::jit::toIValue(elements->at(2)) != torch::jit::IValue(1);
}

Spelling shuffle(const std::string& split, const std::string& join) {
  const std::string text = "%v = " + split + "(%x, %split)\n" +
                           "%t = aten::transpose(%v, %first, %second)\n"
                           "%c = aten::contiguous(%t, %format)\n"
                           "%y = " +
                           join + "(%c, %joined)";
  return Spelling(text)
      .declines_unless("split", splits_channels, "it does not split channels")
      .declines_unless("first", equals(1), "other dimensions are swapped")
      .declines_unless("second", equals(2), "other dimensions are swapped")
      .declines_unless("format", equals(0), "another memory format is asked for")
      .becomes("ipex::channel_shuffle", [=](const Match& match) {
        Graph* graph = match.last()->owningGraph();
        Value *yes = graph->insertConstant(true), *no = graph->insertConstant(false);
        return graph->insertNode(graph->create(
            Symbol::fromQualString("ipex::channel_shuffle"),
            {match["x"], match["split"], match["joined"], split == "aten::reshape" ? yes : no, yes, yes}));
      });
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      shuffle("aten::view", "aten::view"), shuffle("aten::reshape", "aten::view"),
      shuffle("aten::view", "aten::reshape"), shuffle("aten::reshape", "aten::reshape")};
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass fuse_channel_shuffle() {
  return {"fuse_channel_shuffle", run, needs(lists_are_values, eager_layouts, one_name_per_op, plain_views)};
}

}  // namespace ipex::passes
