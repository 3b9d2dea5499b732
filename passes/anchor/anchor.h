// Anchors: the ops that are prepacked. In the graph each is a pair of nodes,
//
//   %context = ipex::convolution_prepack(%weight, %bias, ..., %post_ops, %folded_scale, %folded_shift,
//                                        %math_mode, %vanished, %widens)
//   %y = ipex::convolution_run(%x, %context, %operands, %eager_layout)
//
// and every edit below goes to both, so that a pass need not know which anchor it has before it. What may stand behind
// %eager_layout are ports: what a call does beside its layer, as padding. A layer with one is no anchor any more.
#pragma once

#include <optional>
#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

// Gives the argument of a prepack node another value, a constant.
void set_argument(Node* prepack, const char* name, const torch::jit::IValue& value);
void set_argument(Node* node, const char* name, Value* value);

// Of a prepack node that reads constants only, and so may stand anywhere.
void move_prepack_before(Node* prepack, Node* place);

// Whether a run node gives one of its ports another value than the default.
bool uses_ports(const Node* run);

class Anchor {
 public:
  // The anchor that computes `value`, if one does.
  static std::optional<Anchor> producing(const Value* value);

  // The same, or an op that holds post-ops but packs nothing, which is its own prepack node. Such a one has a run node,
  // post-ops and no operands; it is not asked for anything else.
  static std::optional<Anchor> taking_post_ops(const Value* value);
  bool takes_operands() const { return prepack_ != run_; }

  // Puts the pair of nodes before `node`. `inputs` are the prepack op's, up to and excluding post_ops.
  static Anchor insert_before(Node* node, const std::string& op, at::ArrayRef<Value*> inputs, Value* x);

  Node* prepack() const { return prepack_; }
  Node* run() const { return run_; }
  Value* output() const { return run_->output(); }
  Value* input() const { return run_->input(0); }
  at::ArrayRef<Value*> operands() const { return run_->input(2)->node()->inputs(); }

  Value* argument(const char* name) const { return prepack_->namedInput(name); }
  void set_argument(const char* name, const torch::jit::IValue& value) const {
    passes::set_argument(prepack_, name, value);
  }
  std::vector<std::string> post_ops() const;

  // Whether it has one, and a bias, that something can be folded into.
  bool has_weight() const;
  // The weight's.
  at::ScalarType dtype() const;
  // Convolutions: the number of dimensions of their images. 0 for a linear.
  int64_t spatial_rank() const;
  int64_t output_channels() const;
  bool is_transposed() const;
  // Lets weight and bias compute y * scale + shift instead of y, per output channel. The weight is rounded to the dtype
  // that it has; the bias is float32 from then on.
  void fold(const at::Tensor& scale, const at::Tensor& shift) const;
  // Whether the scaled weight would hold infinities that the weight does not: in float16 they come early.
  bool overflows(const at::Tensor& scale) const;

  // Adds a post-op, as post_ops.inc has it, after those there are. `operand` is null for one that takes none.
  void append_post_op(const std::string& post_op, Value* operand) const;
  // Its result stands for the node's from now on, under the node's name. Destroys the node.
  void take_over(Node* node) const;
  // A bool: whether the result has eager's layout (the default), or may keep the kernel's.
  void set_eager_layout(Value* condition) const { run_->replaceInput(3, condition); }

 private:
  // The weight, each output channel multiplied by its element of `scale`. In float64.
  at::Tensor scaled_weight(const at::Tensor& scale) const;

  Anchor(Node* prepack, Node* run) : prepack_(prepack), run_(run) {}

  Node* prepack_;
  Node* run_;
};

// Whether weights of this dtype can be prepacked: float32, bfloat16, float16.
bool is_packable(at::ScalarType dtype);

// Why aten op `node` can't be prepacked, for what all anchors ask of their weight and bias. Empty when it can.
std::optional<std::string> reason_against_weight(const Node* node);
std::optional<std::string> reason_against_bias(const Node* node, int64_t output_channels);

}  // namespace ipex::passes
