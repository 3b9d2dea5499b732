// What each op does, said once: which memory its results have, what it writes, what it does to dtype and layout, and, for
// ops of ours, which nodes they are made of. op_table.cpp has the rows; every pass reads them here, and nobody else lists
// ops. tests/passes/ops/test_op_table.py holds the rows against the schemas that torch registers.
//
// A row belongs to one overload. `relu.out` is not `relu`: an overload without a row is an unknown op.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/pass.h"

namespace ipex::passes {

// What the results of an op are to its inputs. Written down because schemas do not always say it: type_as, einsum and
// atleast_2d may return their input though their schemas show no alias.
enum class Memory : uint8_t {
  unknown,     // may be an input, a view of one, or kept by somebody
  fresh,       // nobody else has it
  view,        // a new tensor on the memory of the first input
  maybe_view,  // the first input, a view of it, or a copy
  itself,      // the first input
  no_tensor,   // numbers, or values that are only handed on
};

// What an op overwrites of its first input.
enum class Writes : uint8_t {
  nothing,
  elements,
  shape,  // sizes or strides as well, so that the tensor itself matters and not only its memory
};

// Facts about the first result, as bits.
using Traits = uint32_t;
namespace trait {
inline constexpr Traits none = 0;
// The same function of every element of the first input. What comes beside it are numbers.
inline constexpr Traits elementwise = 1 << 0;
// Moves or chooses elements: the result is the same in any floating dtype, and dense for dense inputs. The first input
// holds all tensors that it reads.
inline constexpr Traits chooses = 1 << 1;
// The dtype is that of the first input.
inline constexpr Traits keeps_dtype = 1 << 2;
// The dtype is what the first two inputs promote to.
inline constexpr Traits promotes = 1 << 3;
// aten multiplies no integers with floating point: the result is floating if one factor is.
inline constexpr Traits multiplies = 1 << 4;
// The same elements in any layout; contiguous for contiguous inputs, channels-last for channels-last ones.
inline constexpr Traits any_layout = 1 << 5;
// Contiguous for contiguous inputs.
inline constexpr Traits keeps_contiguous = 1 << 6;
// Gives the first input other dimensions, and leaves the elements in order.
inline constexpr Traits reshapes = 1 << 7;
// Asks what a tensor looks like, and never reads an element.
inline constexpr Traits asks_for_sizes = 1 << 8;
// Cuts its first input into a list of views.
inline constexpr Traits slices = 1 << 9;
// Computes in float32 whatever the model's dtype is.
inline constexpr Traits float32_only = 1 << 10;
// Hands its inputs on without a look at them: lists, tuples, branches.
inline constexpr Traits carries = 1 << 11;
// Overwrites its running statistics in training mode, which its schema does not say.
inline constexpr Traits writes_in_training = 1 << 12;
// Joins the tensors of a list.
inline constexpr Traits joins = 1 << 13;
// Gives dropout's input back in eval mode.
inline constexpr Traits drops_out = 1 << 14;
// Multiplies by a weight that convolution_prepack takes.
inline constexpr Traits convolves = 1 << 15;
// The result is of a floating dtype whatever the inputs are.
inline constexpr Traits floating = 1 << 16;
// Cuts one piece out of its first input, a view.
inline constexpr Traits cuts = 1 << 18;
// Applies post-ops itself: those that its argument post_ops names.
inline constexpr Traits takes_post_ops = 1 << 19;
// Contiguous in eager, whatever layout its input has. Where its argument eager_layout is false it may have another one.
inline constexpr Traits contiguous_in_eager = 1 << 20;
// The strides of the result don't depend on those of its inputs, a run op's operands left out.
inline constexpr Traits hides_strides = 1 << 21;
// Gives something else, or an error, for other strides of the same elements.
inline constexpr Traits needs_strides = 1 << 22;
// A view with its input's dimensions in another order.
inline constexpr Traits moves_dimensions = 1 << 23;
// Of its second input it reads the sizes only.
inline constexpr Traits takes_sizes_of_second = 1 << 25;
// Normalizes rows of the last dimensions.
inline constexpr Traits normalizes_rows = 1 << 24;
// Packs weights into a context.
inline constexpr Traits makes_context = 1 << 17;
// As fast on channels-last inputs as on contiguous ones. So are ops of any layout, and those that go element by element.
inline constexpr Traits reads_any_layout = 1 << 26;
// What it reads beside its first input are no images.
inline constexpr Traits one_image = 1 << 28;
// One element of the memory may be several of the result.
inline constexpr Traits overlaps = 1 << 29;
// The result is of bools whatever the inputs are.
inline constexpr Traits gives_bools = 1 << 27;
}  // namespace trait

// Where a run op has what its prepack op made, and what passes edit. -1 where there is nothing to edit.
struct PackedForm {
  int context = 1;
  int operands = 2;
  int eager_layout = 3;

  bool takes_post_ops() const { return operands >= 0; }
};

struct Op {
  std::string name;      // "aten::add"
  std::string overload;  // "Tensor"
  Memory memory = Memory::unknown;
  Writes writes = Writes::nothing;
  Traits traits = trait::none;
  int weight = -1;                     // the input whose dtype the result has
  std::string_view left = {};          // why it is left to aten, where no pass has a better reason
  const PackedForm* packed = nullptr;  // of a run op of ours

  bool has(Traits wanted) const { return (traits & wanted) == wanted; }
};

// The row of the node's overload. Null where there is none.
const Op* op_of(const Node* node);

// Whether the node's op has a row with these traits.
inline bool has_trait(const Node* node, Traits wanted) {
  const Op* op = op_of(node);
  return op && op->has(wanted);
}

// Whether the node runs a packed op of ours, or makes the context of one.
bool is_run(const Node* node);
bool is_prepack(const Node* node);

// Whether the node is a view by sizes. Where its input may have other strides, reshape stands for it.
bool is_view_by_sizes(const Node* node);

// Whether the node only asks what a tensor looks like.
inline bool asks_for_sizes(const Node* node) { return has_trait(node, trait::asks_for_sizes); }

// The same of a value that is used here.
inline bool reads_only_sizes(const Use& use) {
  return asks_for_sizes(use.user) || (use.offset == 1 && has_trait(use.user, trait::takes_sizes_of_second));
}

// An op as passes and patterns name it: "aten::relu" is every overload of that name in the op table, "aten::max.other" is
// one. No form with `out=` has a row, so none is meant by accident. An op without any row is an error of ours.
class OpName {
 public:
  explicit OpName(std::string_view text);

  // The row of one overload, or the first of several. Null where there is none.
  static const Op* row(std::string_view text);

  bool is_of(const Node* node) const;
  Symbol kind() const { return kind_; }
  const std::string& overload() const { return overload_; }

 private:
  Symbol kind_;
  std::string overload_;
  bool is_any_overload_;
};

// Whether the node is of one of them.
template <size_t n>
bool is_of_any(const OpName (&names)[n], const Node* node) {
  return std::any_of(names, names + n, [&](const OpName& name) { return name.is_of(node); });
}

// Every row: for patterns, which may only name what is here, and for tests.
const std::vector<Op>& op_table();

}  // namespace ipex::passes
