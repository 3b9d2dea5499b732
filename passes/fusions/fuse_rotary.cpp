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
// The op looks at sizes, dtypes and layouts when it runs, and computes what was spelled out where the kernel can't. Declines
// when somebody reads a value in between, as where a position is scaled.
#include <torch/csrc/jit/ir/constants.h>

#include <limits>

#include "aliasing.h"
#include "constants.h"
#include "graph_walk.h"
#include "passes.h"
#include "spelling.h"

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

// Not %f: its size may be asked for, and is not worth a refusal.
std::optional<std::string> reason_against_part(const Node* cat, const Node* rotary, const Node* part,
                                               const Node* rest) {
  if (!equals(-1)(cat->input(1))) return "it does not join the last dimension";
  if (rotary->output()->uses().size() > 1 || rest->output()->uses().size() > 1) {
    return "another reader needs a value in between";
  }
  const bool is_whole = part->input(0) == rest->input(0) && is_same_argument(part->input(1), rest->input(1)) &&
                        is_beginning(part->input(2)) && is_same_argument(part->input(3), rest->input(2)) &&
                        is_end(rest->input(3)) && equals(1)(part->input(4)) && equals(1)(rest->input(4));
  return is_whole ? std::nullopt : std::optional("its parts are not those of a row");
}

bool fuse_parts(Context& context) {
  static const OpName rotary_op("ipex::rotary"), slice("aten::slice");
  const OverwrittenValues overwritten(context.graph);
  bool changed = false;
  for_each(context.graph, "aten::cat", [&](Node* cat) {
    const Node* list = cat->input(0)->node();
    if (list->kind() != c10::prim::ListConstruct || list->inputs().size() != 2) return;
    Node *rotary = list->input(0)->node(), *rest = list->input(1)->node();
    if (!rotary_op.is_of(rotary) || !slice.is_of(rest)) return;
    Node* part = rotary->input(0)->node();
    if (!slice.is_of(part)) return;
    if (const auto reason = reason_against_part(cat, rotary, part, rest)) return context.declined(cat, *reason);
    if (overwritten.contain(part->input(0))) return context.declined(cat, "something is overwritten");
    const torch::jit::WithInsertPoint guard(rotary);
    Node* made = context.graph->create(rotary->kind(), rotary->inputs());
    made->replaceInput(0, part->input(0));
    made->addInput(part->input(3));
    made->addInput(part->input(1));
    context.graph->insertNode(made);
    context.applied(cat, "became ipex::rotary, of a part of each row");
    replace(cat, made);
    changed = true;
  });
  return changed;
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
      becomes_rotary(spelled("%first = aten::slice(%x, %dim, %begin, %end, %two)\n"
                             "%second = aten::slice(%x, %dim, %one, %end, %two)\n",
                             "%t = aten::stack(%l, %joined)\n"
                             "%r = aten::flatten(%t, %from, %joined)\n")
                         .declines_unless("begin", is_beginning, "its pairs do not begin the row")
                         .declines_unless("one", equals(1), "its pairs are not neighbours")
                         .declines_unless("end", is_end, "its pairs do not end the row")
                         .declines_unless("two", equals(2), "its pairs are not neighbours")
                         .declines_unless("from", equals(-2), "it does not join pairs"),
                     "pairs")};
  const bool changed = rewrite_spellings(context, spellings);
  return fuse_parts(context) || changed;
}

}  // namespace

Pass fuse_rotary() { return {"fuse_rotary", run}; }

}  // namespace ipex::passes
