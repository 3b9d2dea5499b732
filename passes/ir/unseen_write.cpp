#include "ir/unseen_write.h"

#include <algorithm>
#include <unordered_set>
#include <vector>

#include "ir/aliasing.h"
#include "ir/flow.h"
#include "ir/graph_walk.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

bool shares_memory_of_first_input(const Op& op) {
  return op.memory == Memory::view || op.memory == Memory::maybe_view || op.memory == Memory::itself;
}

// The fresh value whose memory this one may lie in, and the values on the way there. None where that is not known, or where
// one element of the memory may be several of a value: a write to a piece then reaches other pieces.
std::optional<std::vector<Value*>> way_to_fresh_memory(Value* value) {
  std::vector<Value*> way{value};
  while (!is_fresh(way.back())) {
    Node* node = way.back()->node();
    const Op* op = op_of(node);
    if (!op || node->inputs().empty() || node->owningBlock() != value->node()->owningBlock()) return std::nullopt;
    if (node->kind() != c10::prim::ListUnpack && !shares_memory_of_first_input(*op)) return std::nullopt;
    if (op->has(trait::overlaps)) return std::nullopt;
    way.push_back(node->input(0));
  }
  return way;
}

class Readers {
 public:
  Readers(Node* write, const std::vector<Value*>& way) : write_(write), way_(way.begin(), way.end()) {}

  // Whether somebody reads memory of `value` after the write, otherwise than as the overwritten tensor itself.
  bool read_later(const Value* value) {
    if (!seen_.insert(value).second) return false;
    return std::any_of(value->uses().begin(), value->uses().end(), [&](const Use& use) {
      const bool is_renamed = value == write_->input(0) && (use.user == write_ || write_->isBefore(use.user));
      return !is_renamed && reads_later(use);
    });
  }

 private:
  bool reads_later(const Use& use) {
    const Node* reader = use.user;
    const Op* op = op_of(reader);
    if (!op) return true;  // returned, or unknown
    // The write itself may read elements of another operand that it has overwritten by then.
    const bool is_later = write_->isBefore(reader) || (reader == write_ && use.offset > 0);
    const bool is_piece_of_way = has_trait(reader, trait::slices) || reader->kind() == c10::prim::ListUnpack;
    if (op->has(trait::carries) && reader->kind() != c10::prim::ListConstruct && !is_piece_of_way) return true;
    if (is_later) return true;
    const Flow flow = flow_of(use);
    return flow.escapes() || std::any_of(flow.names.begin(), flow.names.end(), [&](const Value* result) {
             // Of a split's pieces only the one that is overwritten shares its memory.
             const bool is_other_piece =
                 reader->kind() == c10::prim::ListUnpack && leads_to_write(reader) && !way_.count(result);
             return !is_other_piece && read_later(result);
           });
  }

  bool leads_to_write(const Node* unpack) const {
    return std::any_of(unpack->outputs().begin(), unpack->outputs().end(),
                       [&](const Value* piece) { return way_.count(piece) > 0; });
  }

  Node* write_;
  std::unordered_set<const Value*> way_, seen_;
};

// Whether the tensor itself, strides included, reaches somebody who sees them.
bool shows_strides(const Value* value, const Node* after) {
  return std::any_of(value->uses().begin(), value->uses().end(), [&](const Use& use) {
    if (use.user == after || use.user->isBefore(after)) return false;
    const Op* op = op_of(use.user);
    if (op && use.user->kind() == c10::prim::ListConstruct) return shows_strides(use.user->output(), after);
    const Flow flow = flow_of(use);
    return flow.escapes() || !flow.names.empty();
  });
}

// Whether an op gives the tensor itself other strides: then they are not those of a new tensor.
bool is_reshaped_in_place(const Value* value) {
  return std::any_of(value->uses().begin(), value->uses().end(), [](const Use& use) {
    const Op* op = op_of(use.user);
    return op && op->writes == Writes::shape && use.offset == 0;
  });
}

}  // namespace

std::optional<std::string> reason_against_separating(Node* write) {
  Value* overwritten = write->input(0);
  const auto way = way_to_fresh_memory(overwritten);
  if (!way || way->back()->node()->owningBlock() != write->owningBlock())
    return "what it overwrites may be read elsewhere";
  if (std::any_of(way->begin(), way->end(), is_reshaped_in_place)) return "an op before changes its shape in place";
  Readers readers(write, *way);
  if (std::any_of(way->begin(), way->end(), [&](const Value* value) { return readers.read_later(value); })) {
    return "what it overwrites may be read elsewhere";
  }
  // A piece has the strides of the whole, a new tensor has its own.
  if (way->size() > 1 && (shows_strides(overwritten, write) || shows_strides(write->output(), write))) {
    return "it overwrites a piece of a tensor, whose strides others see";
  }
  return std::nullopt;
}

void separate(Node* write, Node* replacement) {
  const Symbol in_place = write->kind();
  Value* overwritten = write->input(0);
  Value* result = replacement->output();
  replace(write, replacement);
  overwritten->replaceAllUsesAfterNodeWith(replacement, result);
  replacement->s_(was_in_place(), in_place.toQualString());
}

Symbol was_in_place() {
  static const Symbol attribute = Symbol::attr("was_in_place");
  return attribute;
}

std::optional<Symbol> separated_op(const Node* node) {
  if (!node->hasAttribute(was_in_place())) return std::nullopt;
  return Symbol::fromQualString(node->s(was_in_place()));
}

}  // namespace ipex::passes
