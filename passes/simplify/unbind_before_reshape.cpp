// unbind_before_reshape: query, key and value are taken apart before their heads are joined with the batch.
//
//   before   %a = aten::reshape(%x, [%b, %n, 3, %h, %d])    %p = aten::permute(%a, [2, 0, 3, 1, 4])
//            %r = aten::reshape(%p, [3, %b_times_h, %n, %d])    %l = aten::unbind(%r, 0)
//            %q, .. = prim::ListUnpack(%l)    %y = aten::view(%q, [%b, %h, %n, %d])
//   after    %l = aten::unbind(%p, 0)    %y, .. = prim::ListUnpack(%l)
//            and for other readers of %q    %q = aten::reshape(%y, [%b_times_h, %n, %d])
//
// No view joins heads with a batch of several images, so the reshape copies all three. Attention takes them as they lie, once a view
// that undoes the reshape is none. What else is read of them is copied as before, one by one.
// Declines where somebody sees the strides (stride_readers.h), or the memory is overwritten.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/size_list.h"
#include "ir/stride_readers.h"
#include "layout/loosen_views.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using Sizes = std::vector<Value*>;

struct Heads {
  Node* unpack;
  Value* permuted;
  Sizes before;  // of a piece of what is permuted
  Sizes joined;  // of a piece of what is reshaped
};

// What gives `count` pieces of its first dimension, which reshapes around it leave alone.
std::optional<Heads> read_heads(Node* unbind) {
  const auto& uses = unbind->output()->uses();
  Node* reshape = unbind->input(0)->node();
  const bool is_unpacked = uses.size() == 1 && uses[0].user->kind() == c10::prim::ListUnpack;
  if (!is_unpacked || constant_integer(unbind->input(1)) != 0 || !is_reshape(reshape)) return std::nullopt;
  Node* permute = reshape->input(0)->node();
  if (permute->kind() != c10::aten::permute || !is_reshape(permute->input(0)->node())) return std::nullopt;
  const auto order = torch::jit::toIValue(permute->input(1));
  const auto joined = elements_of(reshape->input(1)), split = elements_of(permute->input(0)->node()->input(1));
  if (!order || !joined || !split || order->toIntVector().size() != split->size()) return std::nullopt;
  Heads heads{uses[0].user, permute->output(), {}, *joined};
  for (const int64_t d : order->toIntVector()) {
    const int64_t dimension = d < 0 ? d + static_cast<int64_t>(split->size()) : d;
    if (dimension < 0 || dimension >= static_cast<int64_t>(split->size())) return std::nullopt;
    heads.before.push_back(split->at(static_cast<size_t>(dimension)));
  }
  const auto count = static_cast<int64_t>(heads.unpack->outputs().size());
  for (Sizes* sizes : {&heads.before, &heads.joined}) {
    if (sizes->empty() || constant_integer(sizes->front()) != count) return std::nullopt;
    sizes->erase(sizes->begin());
  }
  return heads;
}

std::optional<std::string> reason_against(const Node* unbind, const Heads& heads, const StrideReaders& readers,
                                          const OverwrittenValues& overwritten) {
  const auto pieces = heads.unpack->outputs();
  const bool is_seen = std::any_of(pieces.begin(), pieces.end(), [&](const Value* q) { return readers.see(q); });
  if (is_seen) return "the strides of a result depend on it";
  const bool is_written = overwritten.contain(heads.permuted) || overwritten.contain(unbind->input(0)) ||
                          std::any_of(pieces.begin(), pieces.end(), [&](auto* q) { return overwritten.contain(q); });
  if (is_written) return "something is overwritten";
  return std::nullopt;
}

// The piece itself where the reshape of it is undone; a reshape of its own elsewhere.
void hand_on(Value* piece, Value* joined, const Heads& heads) {
  for (const Use& use : std::vector<Use>(joined->uses())) {
    const auto sizes = is_reshape(use.user) && use.offset == 0 ? elements_of(use.user->input(1)) : std::nullopt;
    if (!sizes ||
        !std::equal(sizes->begin(), sizes->end(), heads.before.begin(), heads.before.end(), is_same_argument)) {
      continue;
    }
    use.user->output()->replaceAllUsesWith(piece);
    use.user->destroy();
  }
  if (joined->uses().empty()) return;
  Graph* graph = piece->owningGraph();
  Node* sizes = graph->insertNode(graph->createList(c10::IntType::get(), heads.joined));
  Node* reshape = graph->insertNode(graph->create(c10::aten::reshape, {piece, sizes->output()}));
  reshape->output()->copyMetadata(joined);
  joined->replaceAllUsesWith(reshape->output());
}

// The pieces of what is permuted.
std::vector<Value*> pieces_before(Node* unbind, const Heads& heads) {
  Graph* graph = heads.unpack->owningGraph();
  Node* list = graph->insertNode(graph->create(unbind->kind(), {heads.permuted, unbind->input(1)}));
  list->output()->copyMetadata(unbind->output());
  return graph->insertNode(graph->createListUnpack(list->output(), heads.unpack->outputs().size()))->outputs().vec();
}

void take_apart(Node* unbind, const Heads& heads) {
  std::vector<Value*> pieces;
  {
    const torch::jit::WithInsertPoint guard(heads.unpack);
    pieces = pieces_before(unbind, heads);
    for (size_t i = 0; i < pieces.size(); ++i) hand_on(pieces[i], heads.unpack->output(i), heads);
  }
  heads.unpack->destroy();
  unbind->destroy();
  loosen_views(pieces);
}

bool run(Context& context) {
  std::vector<std::pair<Node*, Heads>> found;
  for_each(context.graph, "aten::unbind", [&](Node* unbind) {
    if (const auto heads = read_heads(unbind)) found.emplace_back(unbind, *heads);
  });
  if (found.empty()) return false;
  const StrideReaders readers(context.graph);
  const OverwrittenValues overwritten(context.graph);
  std::erase_if(found, [&](const auto& each) {
    const auto reason = reason_against(each.first, each.second, readers, overwritten);
    if (reason) context.declined(each.first, *reason);
    return reason.has_value();
  });
  for (const auto& [unbind, heads] : found) {
    context.applied(unbind, "moved before the reshape");
    take_apart(unbind, heads);
  }
  return !found.empty();
}

}  // namespace

Pass unbind_before_reshape() {
  return {"unbind_before_reshape", run,
          needs(lists_are_values, integer_sizes, no_dropout, one_name_per_op, plain_views)};
}

}  // namespace ipex::passes
