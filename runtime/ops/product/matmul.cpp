// Products of two activations, with post-ops.
//
//   ipex::matmul_prepack(post_ops, math_mode) -> MatmulContext
//   ipex::matmul_run(a, context, operands, eager_layout, b, of_batches) -> Tensor
//   ipex::baddbmm_term(term, factor) -> Tensor
//
// There is nothing to pack; the context holds the post-ops and the primitives. oneDNN computes where both factors have
// one dtype, float32, bfloat16 or float16, that the CPU computes in, at least 2 dimensions, and the same leading
// dimensions; or b has fewer, which are the last ones of a's, and serves for all others. Transposed factors are read as they
// lie, and others are copied. aten does the rest. The result is contiguous, as aten.matmul's is.
#include <ATen/ATen.h>
#include <ATen/TensorUtils.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "memory/result_memory.h"
#include "onednn/row_width.h"
#include "packed/door.h"
#include "packed/fused_op.h"
#include "packed/memory_format.h"
#include "packed/packed_op.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using dnnl::memory;

constexpr const char* op_name = "ipex::matmul_run";

// With more dimensions than the batches and heads of attention, kernels read matrix after matrix, whatever the strides.
// Those of one element don't count: desc_of leaves them out.
bool is_in_order_only(const Tensor& tensor) {
  const auto sizes = tensor.sizes().slice(0, static_cast<size_t>(tensor.dim()) - 2);
  return std::count_if(sizes.begin(), sizes.end(), [](int64_t size) { return size > 1; }) > 2;
}

// The strides of dimensions before the matrix, where one matrix lies behind another.
at::DimVector strides_in_order(const Tensor& tensor) {
  at::DimVector strides(tensor.strides());
  int64_t reach = tensor.size(-1) * tensor.size(-2);
  for (int64_t i = tensor.dim() - 2; i-- > 0; reach *= tensor.size(i)) strides[i] = reach;
  return strides;
}

bool has_dense_rows_or_columns(const Tensor& tensor) {
  const auto is_dense = [&](int64_t i) { return tensor.size(i) > 1 && tensor.stride(i) == 1; };
  return is_dense(-1) || is_dense(-2);
}

// Whether the dimensions before the matrix lie in memory in their order. Where the first of two lies between rows and columns,
// and the second outside of both, oneDNN's kernels read another matrix.
bool has_batches_in_order(const Tensor& tensor) {
  const at::DimVector in_order = strides_in_order(tensor);
  int64_t before = std::numeric_limits<int64_t>::max();
  for (int64_t i = 0; i < tensor.dim() - 2; ++i) {
    if (tensor.size(i) == 1) continue;
    if (is_in_order_only(tensor) ? tensor.stride(i) != in_order[i] : tensor.stride(i) > before) return false;
    before = tensor.stride(i);
  }
  return true;
}

// A tensor that lies in memory without gaps, its rows or its columns in one piece. Others kernels read wrongly, or not.
Tensor readable(const Tensor& tensor) {
  const bool is_single = tensor.size(-1) == 1 && tensor.size(-2) == 1;
  const bool reads = (has_dense_rows_or_columns(tensor) || is_single) && tensor.is_non_overlapping_and_dense() &&
                     has_batches_in_order(tensor);
  return reads ? tensor : contiguous_result(tensor);
}

// Without the dimensions before the matrix that have one element in the result. Their strides say nothing, and may be any number,
// but oneDNN reads the order of dimensions from them. Beside a post-op's operand it takes them for a kind of broadcasting that
// its kernels don't know, and crashes. In the matrix such a dimension gets the stride of a dense one.
memory::desc desc_of(const Tensor& tensor, const Tensor& result) {
  const at::DimVector strides = is_in_order_only(tensor) ? strides_in_order(tensor) : at::DimVector(tensor.strides());
  memory::dims kept_sizes, kept_strides;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (i < tensor.dim() - 2 && result.size(i) == 1) continue;
    kept_sizes.push_back(tensor.size(i));
    kept_strides.push_back(i < tensor.dim() - 2 && tensor.size(i) == 1 ? tensor.numel() : strides[i]);
  }
  if (tensor.size(-1) == 1) kept_strides.end()[-1] = tensor.size(-2);
  if (tensor.size(-2) == 1) kept_strides.end()[-2] = tensor.size(-1);
  return {kept_sizes, data_type_of(tensor.scalar_type()), kept_strides};
}

class MatmulContext final : public FusedOp {
 public:
  MatmulContext(const std::vector<std::string>& post_ops, PinnedMathMode math_mode)
      : FusedOp(op_name, post_ops, math_mode) {}

  Tensor run(const Tensor& a, const Tensor& b, const std::vector<Tensor>& operands) const {
    check_operands(operands);
    if (operands.empty() && b.dim() > 2 && a.dim() > b.dim() && is_plain_cpu(a)) return run_for_all(a, b);
    if (const char* reason = reason_for_aten(a, b, /*may_serve_all=*/operands.empty())) {
      remember(reason);
      return apply_rest(at::matmul(a, b), operands, 0);
    }
    if (reads_more_than_it_multiplies(a, b)) {
      remember("few rows are multiplied by large matrices");
      return apply_rest(at::matmul(a, b), operands, 0);
    }
    if (will_not_come_again(a, b)) {
      remember("small factors whose sizes change from call to call");
      return apply_rest(at::matmul(a, b), operands, 0);
    }
    if (operands.empty() && (costs_a_copy(a, b.size(-1)) || costs_a_copy(b, a.size(-2)))) {
      remember("a factor lies with gaps, which aten reads as it lies");
      return apply_rest(at::matmul(a, b), operands, 0);
    }
    const Product product(a, b);
    FusedPostOps fused = fuse(operands, product);
    Tensor result = empty_result(product.sizes(), a.options());
    const int64_t more = extra_width(a);
    const Tensor left = more == 0 ? readable(a) : at::constant_pad_nd(a, {0, more}).contiguous();
    const Tensor right = more == 0 ? readable(b) : at::constant_pad_nd(b, {0, 0, 0, more}).contiguous();
    std::shared_ptr<const Prepared> primitive = prepare(left, right, result, fused);
    if (!primitive && fused.count > 0) {
      fused = {};
      primitive = prepare(left, right, result, fused);
    }
    if (!primitive) {
      remember("oneDNN has no implementation for these factors on this CPU");
      return apply_rest(at::matmul(a, b), operands, 0);
    }
    if (const Failure failure = primitive->run(left, right, Tensor(), result, fused.operands)) {
      remember(c10::str("oneDNN failed: ", *failure));
      return apply_rest(at::matmul(a, b), operands, 0);
    }
    return apply_rest(result, operands, fused.count);
  }

  State state() const { return save(Spec{op_name, {}, {}, post_op_texts(), {}, {}, math_mode(), {}}, {}); }

  static c10::intrusive_ptr<MatmulContext> load(const State& state) {
    const Spec spec = StateReader(op_name, state).spec();
    return c10::make_intrusive<MatmulContext>(spec.post_ops, spec.math_mode);
  }

  Facts facts() const {
    return {op_name, {{"post_ops", post_op_texts()}, {"math_mode", runtime::describe(math_mode())}}};
  }

 private:
  // The dimensions of `a` that `b` does not have become one, of which `b` has one element.
  Tensor run_for_all(const Tensor& a, const Tensor& b) const {
    const int64_t more = a.dim() - b.dim();
    at::DimVector sizes(a.sizes().slice(more - 1));
    sizes[0] = c10::multiply_integers(a.sizes().slice(0, more));
    const bool is_view = at::detail::computeStride(a.sizes(), a.strides(), sizes).has_value();
    const Tensor joined = (is_view ? a : contiguous_result(a)).view(sizes);
    return run(joined, b.unsqueeze(0), {}).unflatten(0, a.sizes().slice(0, more));
  }

  class Product final : public Result {
   public:
    Product(const Tensor& a, const Tensor& b) : dtype_(a.scalar_type()), sizes_(a.sizes()) {
      sizes_.back() = b.size(-1);
    }
    at::ScalarType dtype() const override { return dtype_; }
    at::IntArrayRef sizes() const override { return sizes_; }
    int64_t channel_dimension() const override { return static_cast<int64_t>(sizes_.size()) - 1; }
    bool is_laid_out_like(const Tensor& tensor) const override { return tensor.is_contiguous(); }
    Tensor kernel_view(const Tensor& tensor) const override { return contiguous_result(tensor); }

   private:
    at::ScalarType dtype_;
    at::DimVector sizes_;
  };

  // `may_serve_all`: whether `b` may have one element in the first dimension, and serve for all of a's.
  static const char* reason_for_aten(const Tensor& a, const Tensor& b, bool may_serve_all) {
    for (const Tensor& factor : {a, b}) {
      if (!is_packable(factor.scalar_type()) || !is_plain_cpu(factor)) return "a factor is not a float32 CPU tensor";
    }
    if (a.scalar_type() != b.scalar_type()) return "the factors differ in dtype";
    if (const char* reason = reason_against_dtype(a.scalar_type())) return reason;
    if (wants_gradient(a) || wants_gradient(b)) return "a factor requires a gradient";
    if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
    const int64_t rank = a.dim();
    const int64_t shared = may_serve_all && rank > 2 && b.dim() == rank && b.size(0) == 1 ? 1 : 0;
    if (rank < 2 || b.dim() != rank || a.size(-1) != b.size(-2) ||
        a.sizes().slice(shared, rank - 2 - shared) != b.sizes().slice(shared, rank - 2 - shared)) {
      return "the factors differ in rank or in their leading dimensions";
    }
    if (a.numel() == 0 || b.numel() == 0) return "there is nothing to compute";
    return nullptr;
  }

  // How many zeros go behind each row of `a`, so that kernels read no other row (row_width.h). Of a product that fits into
  // one row of tiles they copy the rows themselves.
  static int64_t extra_width(const Tensor& a) {
    constexpr int64_t rows_of_a_tile = 16;
    const bool reads_beyond = multiplies_in_tiles(a.scalar_type()) && a.size(-2) > rows_of_a_tile;
    return reads_beyond ? whole_tiles(a.size(-1)) - a.size(-1) : 0;
  }

  // Of few rows oneDNN's kernel takes up to three times as long as aten's, which reads a large matrix as it lies.
  static bool reads_more_than_it_multiplies(const Tensor& a, const Tensor& b) {
    constexpr int64_t few_rows = 8, large = 8192;
    return a.scalar_type() == at::kFloat && a.size(-2) <= few_rows && a.size(-1) * b.size(-1) >= large;
  }

  // Heads that lie in tokens have gaps between their rows, as windows of a longer row have. The copy that oneDNN would get takes
  // a good part of the time of a product that uses each number a few times only. aten reads matrices whose rows have gaps, where
  // they are equally far apart.
  static bool costs_a_copy(const Tensor& factor, int64_t uses) {
    constexpr int64_t few_uses = 64, few_uses_of_a_large_one = 128, large = 65536;
    const int64_t most_uses = factor.numel() < large ? few_uses : few_uses_of_a_large_one;
    if (factor.scalar_type() != at::kFloat || factor.numel() == 0 || uses > most_uses) return false;
    if (factor.is_non_overlapping_and_dense() || !has_dense_rows_or_columns(factor)) return false;
    const int64_t rows = factor.size(-2), columns = factor.size(-1);
    const at::DimVector as_batches{factor.numel() / (rows * columns), rows, columns};
    const auto strides = at::detail::computeStride(factor.sizes(), factor.strides(), as_batches);
    return strides && strides->front() > 0;
  }

  // A model that decodes token by token never comes back to a size. Making a primitive for each takes longer than aten
  // takes for many small products. So after some new sizes in a row the next new one is aten's, and gets a primitive if it
  // comes again soon. Large products always get one.
  bool will_not_come_again(const Tensor& a, const Tensor& b) const {
    constexpr int64_t multiplications_worth_a_primitive = 1 << 24;
    constexpr int some = 4;
    if (a.numel() * b.size(-1) >= multiplications_worth_a_primitive) return false;
    at::DimVector sizes(a.sizes());
    sizes.push_back(b.size(-1));
    bool is_new = false;
    last_sizes_.get(sizes, [&] { return is_new = true; });
    if (is_new) return ++new_in_a_row_ > some;
    if (new_in_a_row_ != 0) new_in_a_row_ = 0;
    return false;
  }

  std::shared_ptr<const Prepared> prepare(const Tensor& a, const Tensor& b, const Tensor& result,
                                          const FusedPostOps& fused) const {
    PrimitiveKey key;
    for (const at::IntArrayRef part : {a.sizes(), a.strides(), b.sizes(), b.strides()}) {
      key.append(part.begin(), part.end());
    }
    return prepared(a.scalar_type(), std::move(key), fused, [&](FP32MathMode mode) -> std::optional<Prepared> {
      const memory::desc dst = desc_of(result, result);
      const auto attr = attributes(mode, fused, dst, dst.get_ndims() - 1);
      dnnl::matmul::primitive_desc desc(engine(), desc_of(a, result), desc_of(b, result), dst, attr,
                                        /*allow_empty=*/true);
      if (!desc || !skip_reference_implementations(desc)) return std::nullopt;
      return Prepared(desc, /*has_bias=*/false);
    });
  }

  mutable LruCache<at::DimVector, bool> last_sizes_{16};
  mutable std::atomic<int> new_in_a_row_ = 0;
};

c10::intrusive_ptr<MatmulContext> matmul_prepack(const std::vector<std::string>& post_ops,
                                                 std::optional<int64_t> math_mode) {
  return c10::make_intrusive<MatmulContext>(post_ops, pinned_math_mode(op_name, math_mode));
}

Tensor matmul_run(const Tensor& a, const c10::intrusive_ptr<MatmulContext>& context,
                  const std::vector<Tensor>& operands, bool, const Tensor& b, bool of_batches) {
  const bool fit = a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0);
  if (of_batches && !fit) return at::bmm(a, b);  // which says what is wrong
  return context->run(a, b, operands);
}

// What aten::baddbmm adds, which has the factors' dtype or is refused. Autocast casts both.
Tensor baddbmm_term(const Tensor& term, const Tensor& factor) {
  const auto dtype_of = [](const Tensor& x) {
    const bool is_cast =
        at::autocast::is_autocast_enabled(at::kCPU) && x.is_floating_point() && x.dtype() != at::kDouble;
    return is_cast ? at::autocast::get_autocast_dtype(at::kCPU) : x.scalar_type();
  };
  TORCH_CHECK(dtype_of(term) == dtype_of(factor), "baddbmm: expected input of the batches' dtype, ",
              factor.scalar_type(), ", got ", term.scalar_type(), ". Cast it first.");
  return term;
}

// aten's, under a name that TorchScript does not split into a product and a sum.
Tensor addmm(const Tensor& term, const Tensor& x, const Tensor& w, const at::Scalar& beta, const at::Scalar& alpha) {
  return at::addmm(term, x, w, beta, alpha);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<MatmulContext>(m, "MatmulContext");
  define(m, "matmul_prepack(str[] post_ops, int? math_mode) -> __torch__.torch.classes.ipex.MatmulContext",
         matmul_prepack);
  define(m,
         "matmul_run(Tensor a, __torch__.torch.classes.ipex.MatmulContext context, Tensor[] operands, "
         "bool eager_layout, Tensor b, bool of_batches=False) -> Tensor",
         matmul_run);
  define(m, "addmm(Tensor term, Tensor x, Tensor w, Scalar beta, Scalar alpha) -> Tensor", addmm);
  define(m, "baddbmm_term(Tensor(a) term, Tensor factor) -> Tensor(a)", baddbmm_term);
}

}  // namespace
}  // namespace ipex::runtime
