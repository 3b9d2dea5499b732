#include "layout/image_readers.h"

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

// Whether all that this reader gives is made contiguous, and so the same in any layout.
bool ends_contiguous(const Use& use) {
  static const OpName contiguous("aten::contiguous");
  const Node* node = use.user;
  if (contiguous.is_of(node)) return number(node->input(1)) == static_cast<int>(at::MemoryFormat::Contiguous);
  const Op* op = op_of(node);
  const bool moves_dimensions = op && op->has(trait::chooses) && !op->has(trait::needs_strides) &&
                                (op->memory == Memory::view || op->memory == Memory::maybe_view);
  if (!moves_dimensions) return false;
  const auto& readers = node->output()->uses();
  return !readers.empty() && std::all_of(readers.begin(), readers.end(), ends_contiguous);
}

// Whether this reader, for which any strides give the same, takes channels-last as well as contiguous: it computes or
// sums element by element, or moves the channels to where they are in memory. So do views that all their readers take.
// Looks so many ops ahead.
bool reads_as_fast(const Stretches& stretches, const Use& use, int ops_ahead = 6) {
  const Node* node = use.user;
  const Op* op = op_of(node);
  if (reads_only_sizes(use) || stretches.take(use)) return true;
  const auto fast = [&](const Value* value) {
    return std::all_of(value->uses().begin(), value->uses().end(),
                       [&](const Use& reader) { return reads_as_fast(stretches, reader, ops_ahead - 1); });
  };
  const auto further = passed_on(use);
  if (!further.empty()) return ops_ahead > 0 && std::all_of(further.begin(), further.end(), fast);
  if (!op || op->has(trait::moves_dimensions) || op->has(trait::reads_any_layout)) return op;
  const bool is_view = op->memory == Memory::view || op->memory == Memory::maybe_view;
  const bool is_elementwise = op->traits & (trait::elementwise | trait::promotes | trait::any_layout);
  const bool hands_on = node->kind() == c10::prim::ListUnpack;
  return (is_view || is_elementwise || hands_on) && ops_ahead > 0 &&
         std::all_of(node->outputs().begin(), node->outputs().end(), fast);
}

}  // namespace

bool takes_any_layout(const Stretches& stretches, const Use& use) {
  const Node* node = use.user;
  if (reads_only_sizes(use) || stretches.take(use) || ends_contiguous(use)) return true;
  const bool makes_list =
      op_of(node) && node->outputs().size() == 1 && node->output()->type()->isSubtypeOf(*c10::ListType::ofTensors());
  const Value* member = node->input(use.offset);
  const auto is_member_of_list = [&](const Use& reader) {
    return stretches.take(reader) && stretches.root_of(member, reader.user->owningBlock());
  };
  if (makes_list) {
    const auto& readers = node->output()->uses();
    if (std::all_of(readers.begin(), readers.end(), is_member_of_list)) return true;
    if (!has_trait(node, trait::slices)) return false;
  }
  return !stretches.sees(use) && reads_as_fast(stretches, use);
}

}  // namespace ipex::passes
