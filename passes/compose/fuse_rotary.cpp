// fuse_rotary: rotary embeddings that a model spells out are one op.
//
//   before   %a = aten::mul(%x, %cos)
//            %f = aten::slice(%x, -1, 0, %half, 1)    %s = aten::slice(%x, -1, %half, .., 1)
//            %n = aten::neg(%s)    %r = aten::cat([%n, %f], -1)
//            %b = aten::mul(%r, %sin)    %y = aten::add(%a, %b)
//   after    %y = ipex::rotary(%x, %cos, %sin, "slices", -1, %half)
//
// and the same with aten::chunk, and with pairs of neighbours that are stacked. Where a part of each row is turned:
//
//   before   %f = aten::slice(%x, -1, 0, %n, 1)    %rest = aten::slice(%x, -1, %n, .., 1)
//            %r = ipex::rotary(%f, ..)
//            %y = aten::cat([%r, %rest], -1)
//   after    %y = ipex::rotary(%x, .., %n, -1)
//
// Where the first tokens are left as they are, as those of a class in vision transformers (or cut by split_with_sizes, or with
// a cast behind the rotary):
//
//   before   %kept = aten::slice(%x, %dim, 0, %n, 1)    %f = aten::slice(%x, %dim, %n, .., 1)
//            %r = ipex::rotary(%f, ..)
//            %y = aten::cat([%kept, %r], %dim)
//   after    %y = ipex::rotary(%x, .., %n, %dim, None)
//
// The op looks at sizes, dtypes and layouts when it runs, and computes what was spelled out where the kernel can't. Declines
// when somebody reads a value in between, as where a position is scaled.
#include <torch/csrc/jit/ir/constants.h>

#include <limits>

#include "ir/aliasing.h"
#include "ir/casts.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/size_list.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

bool is_beginning(const Value* index) { return is_none(index) || equals(0)(index); }

bool is_end(const Value* index) {
  const auto constant = torch::jit::toIValue(index);
  return constant && (constant->isNone() || constant == torch::jit::IValue(std::numeric_limits<int64_t>::max()));
}

Spelling spelled(const std::string& pieces, const std::string& joined) {
  return Spelling("%a = aten::mul(%x, %cos)\n" + pieces + "%n = aten::neg(%second)\n" +
                  "%l = prim::ListConstruct(%n, %first)\n" + joined +
                  "%b = aten::mul(%r, %sin)\n"
                  "%y = aten::add(%a, %b, %alpha)")
      .declines_unless("alpha", equals(1), "it scales a term")
      .declines_unless("joined", equals(-1), "it does not join the last dimension");
}

// Of neighbours, which are stacked and then flattened.
Spelling spelled_in_pairs(const std::string& flattened) {
  return spelled(
             "%first = aten::slice(%x, %dim, %begin, %end, %two)\n"
             "%second = aten::slice(%x, %dim, %one, %end, %two)\n",
             "%t = aten::stack(%l, %joined)\n" + flattened)
      .declines_unless("begin", is_beginning, "its pairs do not begin the row")
      .declines_unless("one", equals(1), "its pairs are not neighbours")
      .declines_unless("end", is_end, "its pairs do not end the row")
      .declines_unless("two", equals(2), "its pairs are not neighbours");
}

// `half` where the text has none of that name.
Spelling becomes_rotary(Spelling spelling, const char* form) {
  const bool has_half = spelling.mentions("half");
  return std::move(spelling).becomes("ipex::rotary", [=](const Match& match) {
    Graph* graph = match.last()->owningGraph();
    Value* half = has_half ? match["half"] : graph->insertConstant(0);
    return graph->insertNode(
        graph->create(Symbol::fromQualString("ipex::rotary"),
                      {match["x"], match["cos"], match["sin"], graph->insertConstant(form), match["dim"], half}));
  });
}

// The numbers before and behind a place of a dimension.
struct Parts {
  Value *whole, *dim, *place;
};

// Of two slices. Somebody may ask for their sizes.
std::optional<Parts> parts_of_slices(const Node* before, const Node* behind) {
  const bool are_parts = before->input(0) == behind->input(0) && is_same_argument(before->input(1), behind->input(1)) &&
                         is_beginning(before->input(2)) && is_same_argument(before->input(3), behind->input(2)) &&
                         is_end(behind->input(3)) && equals(1)(before->input(4)) && equals(1)(behind->input(4));
  return are_parts ? std::optional(Parts{before->input(0), before->input(1), before->input(3)}) : std::nullopt;
}

// Whether the number is the size of a dimension: it was asked for, or was given where the value was reshaped.
bool is_size_of(const Value* number, Value* value, int64_t dim) {
  static const OpName size("aten::size");
  const Node* node = number->node();
  if (size.is_of(node) && node->inputs().size() == 2) {
    if (node->input(0) == value && constant_integer(node->input(1)) == dim) return true;
  }
  const Value* given = given_size(value, dim);
  return given && is_same_argument(given, number);
}

// Of a split whose first size is what the second leaves: with other sizes it may raise an error.
std::optional<Parts> parts_of_split(const Value* before, const Value* behind) {
  static const OpName split("aten::split_with_sizes");
  const Node* unpack = before->node();
  if (unpack->kind() != c10::prim::ListUnpack || unpack != behind->node() || unpack->outputs().size() != 2 ||
      before->offset() != 0 || !split.is_of(unpack->input()->node())) {
    return std::nullopt;
  }
  const Node* node = unpack->input()->node();
  const auto sizes = elements_of(node->input(1));
  if (!sizes || sizes->size() != 2) return std::nullopt;
  const Node* rest = sizes->front()->node();
  const auto dim = constant_integer(node->input(2));
  const bool sums_up = dim && rest->kind() == c10::aten::sub && rest->input(1) == sizes->back() &&
                       is_size_of(rest->input(0), node->input(0), *dim);
  return sums_up ? std::optional(Parts{node->input(0), node->input(2), sizes->front()}) : std::nullopt;
}

bool is_rotary_of_rows(const Node* node) {
  static const OpName rotary("ipex::rotary");
  return rotary.is_of(node) && node->inputs().size() == 6;
}

// Puts a rotary of `parts.whole` in the place of `cat`, with these arguments at the end.
void become_one(Context& context, Node* cat, Node* rotary, const Parts& parts, const std::vector<Value*>& more,
                const char* what) {
  const torch::jit::WithInsertPoint guard(rotary);
  Node* made = context.graph->create(rotary->kind(), rotary->inputs());
  made->replaceInput(0, parts.whole);
  for (Value* value : {parts.place, parts.dim}) made->addInput(value);
  for (Value* value : more) made->addInput(value);
  context.graph->insertNode(made);
  context.became(cat, what);
  replace(cat, made);
}

// A part of each row is turned.
bool fuse_rest_of_rows(Context& context, const OverwrittenValues& overwritten, Node* cat, Value* first, Value* second) {
  static const OpName slice("aten::slice");
  Node *rotary = first->node(), *rest = second->node();
  if (!is_rotary_of_rows(rotary) || !slice.is_of(rest) || !slice.is_of(rotary->input(0)->node())) return false;
  const auto decline = [&](const char* reason) {
    context.declined(cat, reason);
    return false;
  };
  if (!equals(-1)(cat->input(1))) return decline("it does not join the last dimension");
  if (first->uses().size() > 1 || second->uses().size() > 1) return decline("another reader needs a value in between");
  const auto parts = parts_of_slices(rotary->input(0)->node(), rest);
  if (!parts) return decline("its parts are not those of a row");
  if (overwritten.contain(parts->whole)) return decline("something is overwritten");
  become_one(context, cat, rotary, *parts, {}, "ipex::rotary, of a part of each row");
  return true;
}

// The first tokens are left as they are.
bool fuse_kept_tokens(Context& context, const OverwrittenValues& overwritten, Node* cat, Value* first, Value* second) {
  static const OpName slice("aten::slice");
  const auto cast = cast_of(second);
  Value* turned = cast ? cast->source : second;
  Node* rotary = turned->node();
  if (!is_rotary_of_rows(rotary)) return false;
  const Value* behind = rotary->input(0);
  const bool are_slices = slice.is_of(first->node()) && slice.is_of(behind->node());
  const auto parts = are_slices ? parts_of_slices(first->node(), behind->node()) : parts_of_split(first, behind);
  if (!parts) return false;
  const auto decline = [&](const char* reason) {
    context.declined(cat, reason);
    return false;
  };
  if (!is_same_argument(cat->input(1), parts->dim)) return decline("it joins another dimension than it cuts");
  if (turned->uses().size() > 1 || second->uses().size() > 1) return decline("another reader needs a value in between");
  if (cast && !cast->is_unconditional) return decline("its cast depends on the input");
  if (overwritten.contain(parts->whole)) return decline("something is overwritten");
  const torch::jit::WithInsertPoint guard(rotary);
  Value* dtype =
      cast ? context.graph->insertConstant(cast->dtype) : context.graph->insertConstant(torch::jit::IValue());
  become_one(context, cat, rotary, *parts, {dtype}, "ipex::rotary, of all tokens but the first");
  return true;
}

bool fuse_parts(Context& context, bool keeps_shapes) {
  const OverwrittenValues overwritten(context.graph);
  bool changed = false;
  for_each(context.graph, "aten::cat", [&](Node* cat) {
    const auto parts = elements_of(cat->input(0));
    if (!parts || parts->size() != 2) return;
    Value *first = parts->at(0), *second = parts->at(1);
    changed |= fuse_rest_of_rows(context, overwritten, cat, first, second) ||
               (keeps_shapes && fuse_kept_tokens(context, overwritten, cat, first, second));
  });
  return changed;
}

// Whether a reshape of stacked pairs gives what they were cut from.
bool flattens_its_pairs(const Value* reshaped) {
  static const OpName size("aten::size");
  const Node* reshape = reshaped->node();
  const Node* pairs = reshape->input(0)->node()->input(0)->node();
  Value* whole = pairs->inputs().back()->node()->input(0);
  const Node* all = reshape->input(1)->node();
  if (size.is_of(all)) return all->inputs().size() == 1 && all->input(0) == whole;
  const auto sizes = elements_of(reshape->input(1));
  if (!sizes || sizes->size() < 2) return false;
  const int64_t last = std::ssize(*sizes) - 1;
  for (int64_t i = 0; i < last; ++i) {
    if (!is_size_of((*sizes)[static_cast<size_t>(i)], whole, i)) return false;
  }
  return is_size_of(sizes->back(), whole, last) || constant_integer(sizes->back());  // it follows from the others
}

bool run(Context& context) {
  static const std::vector<Spelling> spellings{
      becomes_rotary(spelled("%first = aten::slice(%x, %dim, %begin, %half, %step)\n"
                             "%second = aten::slice(%x, %dim, %half, %end, %step)\n",
                             "%r = aten::cat(%l, %joined)\n")
                         .declines_unless("begin", is_beginning, "its first half does not begin the row")
                         .declines_unless("end", is_end, "its second half does not end the row")
                         .declines_unless("step", equals(1), "its halves have gaps"),
                     "slices"),
      becomes_rotary(spelled("%c = aten::chunk(%x, %two, %dim)\n"
                             "%first, %second = prim::ListUnpack(%c)\n",
                             "%r = aten::cat(%l, %joined)\n")
                         .declines_unless("two", equals(2), "it does not cut in two"),
                     "chunks"),
      becomes_rotary(spelled_in_pairs("%r = aten::flatten(%t, %from, %joined)\n")
                         .declines_unless("from", equals(-2), "it does not join pairs"),
                     "pairs")};
  // Sizes in the graph are those of the tensors where nobody changes these.
  static const std::vector<Spelling> by_sizes{
      becomes_rotary(spelled_in_pairs("%r = aten::reshape(%t, %sizes)\n")
                         .declines_unless("r", flattens_its_pairs, "it does not join pairs"),
                     "pairs")};
  bool changed = rewrite_spellings(context, spellings);
  const bool keeps_shapes = !reshapes_in_place(context.graph);
  if (keeps_shapes) changed |= rewrite_spellings(context, by_sizes);
  return fuse_parts(context, keeps_shapes) || changed;
}

}  // namespace

Pass fuse_rotary() {
  return {"fuse_rotary", run, needs(lists_are_values, aten_names, one_name_per_op, plain_arithmetic)};
}

}  // namespace ipex::passes
