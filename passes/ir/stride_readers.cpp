#include "ir/stride_readers.h"

#include <algorithm>

#include "ir/graph_walk.h"
#include "ir/unseen_write.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

// Arithmetic in place that might as well give a tensor of its own: with the strides of its first operand, too.
bool is_unseen_arithmetic(Node* node) {
  static const OpName names[] = {OpName("aten::add_"), OpName("aten::sub_"), OpName("aten::mul_"),
                                 OpName("aten::div_")};
  return is_of_any(names, node) && !reason_against_separating(node);
}

// Whether this reader looks at strides itself, or is not known well enough.
bool sees_strides(Node* reader, const Op* op) {
  if (!op || !reader->blocks().empty()) return true;
  const bool is_list = reader->kind() == c10::prim::ListConstruct || reader->kind() == c10::prim::ListUnpack;
  if (is_list || is_unseen_arithmetic(reader)) return false;
  return op->memory == Memory::no_tensor || op->memory == Memory::unknown || op->memory == Memory::itself ||
         op->writes != Writes::nothing || (op->has(trait::needs_strides) && !is_view_by_sizes(reader));
}

// The number of the first result whose strides may depend on those of what is used.
size_t first_that_follows(const Use& use, const Op& op) {
  const bool is_operand = op.packed && op.packed->operands == static_cast<int>(use.offset);
  return op.has(trait::hides_strides) && !is_operand ? 1 : 0;
}

// A convolution's result is channels-last where its image is, which norms over channels want; and what moves dimensions
// again is asked for itself.
bool ends_stream(const Op& op) {
  return op.has(trait::moves_dimensions) || op.has(trait::convolves) || (op.packed && !op.has(trait::hides_strides));
}

}  // namespace

bool StrideReaders::see(const Use& use) const {
  const Op* op = op_of(use.user);
  if (reads_only_sizes(use)) return false;
  // What is overwritten keeps its strides, whatever it is overwritten with.
  if (op && use.offset > 0 && op->memory == Memory::itself && op->writes == Writes::elements) return false;
  const auto further = passed_on(use);
  if (!further.empty()) {
    return std::any_of(further.begin(), further.end(), [&](const Value* value) { return see(value); });
  }
  if (sees_strides(use.user, op)) return true;
  const auto results = use.user->outputs().slice(first_that_follows(use, *op));
  return std::any_of(results.begin(), results.end(), [&](const Value* result) { return see(result); });
}

bool StrideReaders::normalizes(const Use& use) const {
  const auto further = passed_on(use);
  if (!further.empty()) {
    return std::any_of(further.begin(), further.end(), [&](const Value* value) { return normalize(value); });
  }
  const Op* op = op_of(use.user);
  if (reads_only_sizes(use) || sees_strides(use.user, op)) return false;
  if (op->has(trait::normalizes_rows)) return true;
  const bool follows = first_that_follows(use, *op) == 0 && !ends_stream(*op) && !use.user->outputs().empty();
  return follows && normalize(use.user->output(0));
}

void StrideReaders::look_at(const Value* value) {
  for (const Use& use : value->uses()) {
    if (see(use)) seen_.insert(value);
    if (normalizes(use)) normalized_.insert(value);
  }
}

// From the end, so that what is said of a value's readers is known before it.
void StrideReaders::look_at(const Block* block) {
  for (const Node* node : block->nodes().reverse()) {
    for (const Value* output : node->outputs()) look_at(output);
    for (const Block* inner : node->blocks()) {
      node->kind() == c10::prim::Loop ? look_at_body(inner) : look_at(inner);
    }
  }
  for (const Value* input : block->inputs()) look_at(input);
}

// What a round returns is what the next one reads.
void StrideReaders::look_at_body(const Block* body) {
  size_t before;
  do {
    before = seen_.size() + normalized_.size();
    look_at(body);
  } while (seen_.size() + normalized_.size() > before);
}

}  // namespace ipex::passes
