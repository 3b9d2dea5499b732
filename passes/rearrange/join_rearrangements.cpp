// join_rearrangements: reshapes and permutations in a row are one op, which copies once.
//
//   before   %a = aten::reshape(%x, %split)    %b = aten::permute(%a, %order)    %c = aten::reshape(%b, %joined)
//            %d = ipex::to_channels_last(%c, %rank)
//   after    %d = ipex::rearrange(%x, [reshape, permute, reshape, channels_last], ..)
//
// Windows, patches and heads are cut out of images like this, and put together again. Each reshape of what is permuted
// copies, and so does each conversion of the layout; what all of them do is one copy, or none.
// A row ends with what may copy: a permutation after it is a view, of what its readers want in one piece. F.unfold, and F.fold of
// windows that lie side by side, are steps of a row, or a row alone.
// Declines where somebody sees the strides (stride_readers.h), reads a step in between, or overwrites the memory.
#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"
#include "rearrange/rearranging_step.h"

namespace ipex::passes {
namespace {

using Step = RearrangingStep;

// The steps that end with this node, in order.
std::vector<Step> row_before(Node* last) {
  std::vector<Step> row;
  for (Node* node = last; node->owningBlock() == last->owningBlock(); node = node->input(0)->node()) {
    const auto step = read_step(node);
    if (!step || (node != last && node->output()->uses().size() != 1)) break;
    row.insert(row.begin(), *step);
  }
  return row;
}

// The step that alone reads what this node gives.
std::optional<Step> step_after(const Node* node) {
  const auto& uses = node->output()->uses();
  const bool is_one = uses.size() == 1 && uses[0].offset == 0 && uses[0].user->owningBlock() == node->owningBlock();
  return is_one ? read_step(uses[0].user) : std::nullopt;
}

// Whether a row ends here: it may copy, and no step behind it may.
bool ends_row(Node* node) {
  const auto step = read_step(node);
  if (!step || !step->may_copy()) return false;
  for (auto next = step_after(node); next; next = step_after(next->node)) {
    if (next->may_copy()) return false;
  }
  return true;
}

// Whether what the node gives may lie in any order, so that one reshape of it alone is worth a copy of ours.
bool may_be_permuted(const Node* node) {
  static const OpName chain("ipex::elementwise.");
  if (node->kind() == c10::prim::ListUnpack) node = node->input()->node();  // a piece of what it cuts
  const Op* op = op_of(node);
  return chain.is_of(node) || op && (op->memory == Memory::view || op->traits & (trait::elementwise | trait::promotes));
}

std::optional<std::string> reason_against(const std::vector<Step>& row, const StrideReaders& readers,
                                          const OverwrittenValues& overwritten) {
  if (readers.see(row.back().node->output())) return "stays: the strides of a result depend on it";
  const auto is_written = [&](const Step& step) { return overwritten.contain(step.node->input(0)); };
  // Writes that are over when the first step runs are seen by all of them.
  const Node* first = row.front().node;
  if (std::any_of(row.begin(), row.end(), is_written) && is_overwritten_after(first->input(0), first))
    return "stays: something is overwritten";
  return std::nullopt;
}

void join(const std::vector<Step>& row) {
  Node* last = row.back().node;
  Graph* graph = last->owningGraph();
  const torch::jit::WithInsertPoint guard(last);
  const StepsAsData data = as_data(row);
  static const Symbol rearrange = Symbol::fromQualString("ipex::rearrange");
  Value* x = row.front().node->input(0);
  replace(last, graph->insertNode(graph->create(rearrange, {x, data.names, data.counts, data.numbers})));
  for (auto step = row.rbegin() + 1; step != row.rend(); ++step) step->node->destroy();
}

bool run(Context& context) {
  if (writes_to_shared_memory(context.graph)) return false;
  std::vector<Node*> ends;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (ends_row(node)) ends.push_back(node);
  });
  if (ends.empty()) return false;
  static const OpName windows[] = {OpName("aten::im2col"), OpName("aten::col2im")};
  const OverwrittenValues overwritten(context.graph);
  const StrideReaders readers(context.graph);
  bool changed = false;
  for (Node* end : ends) {
    const std::vector<Step> row = row_before(end);
    if (row.size() < 2 && !is_of_any(windows, end) && !may_be_permuted(end->input(0)->node())) continue;
    if (const auto reason = reason_against(row, readers, overwritten)) {
      context.declined(end, *reason);
      continue;
    }
    context.applied(end, "joined with the reshapes and permutations before it");
    join(row);
    changed = true;
  }
  return changed;
}

}  // namespace

Pass join_rearrangements() { return {"join_rearrangements", run, breaks(plain_views)}; }

}  // namespace ipex::passes
