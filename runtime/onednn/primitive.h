// What convolution and matmul have in common when they talk to oneDNN: the engine, attributes from post-ops, the choice
// of an implementation worth running, and its execution on plain pointers.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "math_mode.h"
#include "onednn/dnnl.h"
#include "onednn/lru_cache.h"
#include "packed/post_op.h"

namespace ipex::runtime {

const dnnl::engine& engine();

// The threads that a primitive made now will use for good: oneDNN freezes the number at creation. Asking aten first
// also makes a new thread take over torch's setting.
int thread_count();

// How a post-op's operand is spread over the result: it has the result's shape, or one element per channel, or one for
// all.
enum class Spread { full, channel, all };

// Attributes that make a primitive compute in this mode and apply the first post-ops, one spread for each operand of
// theirs, to a result `dst` whose dimension `channel` has the channels. With `accumulates` the first one adds what lies in
// the result's memory, and has no operand.
dnnl::primitive_attr attributes(FP32MathMode math_mode, const PostOps& post_ops, size_t count,
                                const std::vector<Spread>& spreads, const dnnl::memory::desc& dst, int channel,
                                bool accumulates = false);

// Whether this oneDNN gives aten's result for the post-op, NaN included.
bool is_exact(const PostOp& post_op);

// Moves `desc` on to the first implementation that is no slow reference loop. False when there is none.
bool skip_reference_implementations(dnnl::primitive_desc& desc);

// A float32 matrix whose columns lie in panels: `columns` of them side by side, dense for the whole depth. The last panel
// may be padded.
struct Panels {
  const float* data;
  int64_t columns;
  int64_t size;  // elements from one panel to the next
};

// A weight in the layout that oneDNN asked for. Held once; the plain one is made again from it. A matrix is packed piece
// by piece, and where nobody else can read the plain one its memory is given back as quickly: what it holds is lost.
class PackedWeight {
 public:
  PackedWeight(const at::Tensor& plain, dnnl::memory::desc plain_desc, const dnnl::memory::desc& packed_desc);

  const dnnl::memory::desc& desc() const { return desc_; }
  // None for weights that are laid out otherwise.
  const std::optional<Panels>& panels() const { return panels_; }
  // Writes the plain weight into `plain`, which is laid out as the one packed was.
  void unpack_into(const at::Tensor& plain) const;
  // The weight in the layout `wanted`, for a primitive that can't take the packed one: a second copy, of which there is
  // never more than one.
  at::Tensor in_layout(const dnnl::memory::desc& wanted) const;

 private:
  void pack_in_pieces(const at::Tensor& plain);

  dnnl::memory::desc plain_desc_;
  dnnl::memory::desc desc_;
  at::Tensor bytes_;
  std::optional<Panels> panels_;
  mutable LruCache<dnnl::memory::desc, at::Tensor> other_layout_{1};
};

// What a run hands to a primitive. Making these costs more than a small product, so each is kept for the next run.
struct ExecutionArguments {
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> list;  // of the memories, in the same order
};

// Keeps the arguments of one run; of runs side by side, those of one.
class SpareArguments {
 public:
  ~SpareArguments() { delete kept_.load(); }

  // Null when there are none, or another run has them.
  std::unique_ptr<ExecutionArguments> take() { return std::unique_ptr<ExecutionArguments>(kept_.exchange(nullptr)); }
  void give_back(std::unique_ptr<ExecutionArguments> arguments) { delete kept_.exchange(arguments.release()); }

 private:
  std::atomic<ExecutionArguments*> kept_{nullptr};
};

// A primitive for one set of shapes, ready to run from any thread.
class Prepared {
 public:
  Prepared(const dnnl::primitive_desc& desc, bool has_bias);

  void run(const at::Tensor& src, const PackedWeight& weight, const at::Tensor& bias, const at::Tensor& dst,
           const std::vector<at::Tensor>& operands) const;
  // The same with a weight that is laid out as the primitive was told.
  void run(const at::Tensor& src, const at::Tensor& weight, const at::Tensor& bias, const at::Tensor& dst,
           const std::vector<at::Tensor>& operands) const;

  // The mode that the primitive was made with, asked of the primitive itself.
  FP32MathMode math_mode() const;

 private:
  dnnl::primitive primitive_;
  // In the order in which run() fills them: source, weights, result, bias if any, operands, scratchpad if any.
  std::vector<std::pair<int, dnnl::memory::desc>> arguments_;
  dnnl::memory::desc weights_;
  bool has_bias_;
  size_t scratchpad_size_;
  std::unique_ptr<SpareArguments> spare_ = std::make_unique<SpareArguments>();
};

}  // namespace ipex::runtime
