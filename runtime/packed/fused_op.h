// An op that applies post-ops to its result: it decides which of them the kernel takes, leaves the rest to aten, and caches
// the primitives.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/custom_class.h>

#include <optional>
#include <string>
#include <vector>

#include "math_mode.h"
#include "memory/result_memory.h"
#include "onednn/lru_cache.h"
#include "onednn/making.h"
#include "onednn/primitive.h"
#include "packed/call_conditions.h"
#include "packed/fused_post_ops.h"
#include "packed/post_op.h"
#include "threads/thread_count.h"

namespace ipex::runtime {

// The shapes that a primitive is made for, and all else that it depends on. Made at every call: small ones need no memory
// of their own.
using PrimitiveKey = c10::SmallVector<int64_t, 24>;

// How an operand is spread over a result of these sizes, whose dimension `channel` has the channels. None when it is not, or
// in a way that oneDNN can't follow.
std::optional<Spread> spread_of(const at::Tensor& operand, at::IntArrayRef sizes, int64_t channel);

class FusedOp : public torch::CustomClassHolder {
 public:
  FusedOp(const char* name, const std::vector<std::string>& post_ops, PinnedMathMode math_mode);

  // Why calls, or post-ops, were left to aten, each reason once.
  std::vector<std::string> fallback_reasons() const { return reasons_.list(); }
  size_t cached_primitives() const { return primitives_.size(); }
  // The mode that each of these computes in, as oneDNN has it, the last used first.
  std::vector<std::string> primitive_math_modes() const;
  // The name of each one's kernel, in the same order.
  std::vector<std::string> primitive_kernels() const;
  std::vector<std::string> post_op_texts() const { return texts_of(post_ops_); }

 protected:
  // What post-ops have to know about the result of one call.
  class Result {
   public:
    virtual ~Result() = default;
    virtual at::ScalarType dtype() const = 0;
    virtual at::IntArrayRef sizes() const = 0;
    virtual int64_t channel_dimension() const = 0;
    // Whether `tensor`, of the same sizes, is laid out as the result will be.
    virtual bool is_laid_out_like(const at::Tensor& tensor) const = 0;
    // An operand of the same sizes, as the kernel reads it.
    virtual at::Tensor kernel_view(const at::Tensor& tensor) const = 0;
  };

  void check_operands(const std::vector<at::Tensor>& operands) const;
  // The leading post-ops that a kernel can apply in this call. `applies` says which ones it has; oneDNN's are the default.
  FusedPostOps fuse(const std::vector<at::Tensor>& operands, const Result& result,
                    bool (*applies)(const PostOp&) = is_exact) const;
  // Whether the first post-op adds the first operand, and nothing else.
  bool begins_with_addition() const { return begins_with_addition_; }
  // Whether the first of `fused` adds all of a dead operand, as it lies in memory: then the result may be written over it.
  static bool adds_in_place(const FusedPostOps& fused, const at::Tensor& dead);
  // aten applies the post-ops from `done` on.
  at::Tensor apply_rest(at::Tensor y, const std::vector<at::Tensor>& operands, size_t done) const;
  dnnl::primitive_attr attributes(FP32MathMode mode, const FusedPostOps& fused, const dnnl::memory::desc& dst,
                                  int channel) const {
    return runtime::attributes(mode, post_ops_, fused, dst, channel);
  }
  // The primitive for this dtype, key, thread count, math mode and fusion, made by `make(mode)` when there is none. Null
  // when that gives none or oneDNN refuses. That is remembered like a primitive: nobody asks twice for the same shape.
  template <typename Make>
  std::shared_ptr<const Prepared> prepared(at::ScalarType dtype, PrimitiveKey key, const FusedPostOps& fused,
                                           Make&& make) const {
    // Asked once: it may change at any time. Only float32 has modes.
    const FP32MathMode mode = dtype == at::kFloat ? math_mode_now(math_mode_) : FP32MathMode::FP32;
    for (const int64_t part : {static_cast<int64_t>(dtype), int64_t{thread_count()}, static_cast<int64_t>(mode),
                               static_cast<int64_t>(fused.count), int64_t{fused.accumulates}}) {
      key.push_back(part);
    }
    for (const Spread spread : fused.spreads) key.push_back(static_cast<int64_t>(spread));
    const auto make_or_none = [&]() -> std::optional<Prepared> {
      // Of some small work oneDNN makes only what has no more pieces than there are threads.
      const int threads = thread_count();
      for (int pieces = onednn_pieces(); pieces > 0; pieces = pieces > threads ? threads : 0) {
        const Pieces cut(pieces);
        const Making making;
        try {
          if (auto made = make(mode)) return made;
        } catch (const dnnl::error&) {
        }
      }
      return std::nullopt;
    };
    const std::shared_ptr<const std::optional<Prepared>> found = primitives_.get(key, make_or_none);
    return {found, *found ? &**found : nullptr};
  }

  void remember(const std::string& reason) const { reasons_.remember(reason); }
  const char* name() const { return name_; }
  const PostOps& post_ops() const { return post_ops_; }
  const PinnedMathMode& math_mode() const { return math_mode_; }

 private:
  bool take(const PostOp& op, const at::Tensor& operand, const Result& result, bool applies, FusedPostOps& fused) const;

  const char* name_;
  PostOps post_ops_;
  size_t operand_count_;
  bool begins_with_addition_;
  PinnedMathMode math_mode_;
  mutable LruCache<PrimitiveKey, std::optional<Prepared>> primitives_{16};
  KeepsResultMemory keeps_result_memory_;
  mutable FallbackReasons reasons_;
};

}  // namespace ipex::runtime
