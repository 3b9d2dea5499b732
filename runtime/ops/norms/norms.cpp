// Normalisations of the last dimensions, in one pass over the rows.
//
//   ipex::add_layer_norm(a, b, normalized_shape, weight, bias, eps, keep_sum, in_place) -> (y, sum)
//     y = layer_norm(a + b). The sum is given back where the model needs it elsewhere, else it is undefined. In place of
//     a, dtype and shape of the sum are those of a; a itself is only read.
//   ipex::layer_norm(x, normalized_shape, weight, bias, eps) -> y
//     aten's, for a norm before which nothing is added.
//   ipex::layer_norm_to_rows, ipex::add_layer_norm_to_rows(.., moves, numbers)
//     the same, with y moved by the steps of ops/layout/row_moves.h: each row is written where it goes.
//   ipex::layer_norm_of_rows, ipex::add_layer_norm_of_rows(.., moves, numbers)
//     the same, of x or of b moved so: each row is read where it lies.
//   ipex::add_layer_norm.bytes, ipex::layer_norm.bytes(.., scale, zero_point), and so the others
//     the same, with ipex::quantize(y, scale, zero_point) in the place of y: a row is rounded while it is near.
//   ipex::add_layer_norm.lowered, ipex::layer_norm.lowered(.., dtype), and so the others
//     the same, with ipex::lower_precision(y, dtype) in the place of y. layer_norm's x is ipex::restore_precision(x): it may have
//     16 bits.
//   ipex::layer_norm_sum, ipex::layer_norm_of_rows_sum(residual, x, ..) -> y
//     the same of x, added to a residual: float32 of its shape, or step by step.
//   ipex::rms_norm(x, weight, eps, dtype, normalized_shape) -> y
//     y = weight * (x * rsqrt(mean(x ** 2) + eps)).to(dtype), or aten::rms_norm(x, ..) where there is a normalized_shape. Weight
//     and eps may be missing; then eps is that of float32.
//   ipex::rms_norm_sum(residual, x, .., like) -> y
//     the same, in the dtype of `like` where there is one, added to a residual.
//
// The kernels take contiguous float32 (layer_norm and rms_norm read pieces of rows and rows in another order too, rms_norm
// rows side by side, and they copy the rest), and rows of 16 bits as floats: these are rounded once, where aten rounds the
// sum of a and b, and all that rms_norm is spelled out as. All else, and whatever overflows on the way, is computed by the
// aten ops that the model spelled out. A profiler shows them, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <type_traits>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "ops/elementwise/eager_layout.h"
#include "ops/layout/row_moves.h"
#include "ops/quantized/stored_as.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// Calls moment = row(i, room) for each row on all threads. False when one of them is not finite: aten takes its sums in
// another order, so whether and where they overflow is for aten to say. `room` is for a row of floats that lies nowhere
// else, as where it has 16 bits in memory.
template <typename Row>
bool for_each_row(int64_t rows, int64_t width, bool needs_room, Row&& row) {
  constexpr int64_t elements_worth_waking = 16384;
  std::atomic<bool> finite{true};
  parallel_for(rows, grain_of(rows, rows * width, elements_worth_waking), [&](int64_t begin, int64_t end) {
    const at::Tensor memory = needs_room ? scratch(sizeof(float) * static_cast<size_t>(width)) : at::Tensor();
    float* room = needs_room ? static_cast<float*>(memory.data_ptr()) : nullptr;
    bool all = true;
    for (int64_t i = begin; i < end; ++i) all &= std::isfinite(row(i, room));
    if (!all) finite = false;
  });
  return finite;
}

// The rows of a result: floats or numbers of 16 bits, or with an affine 8-bit numbers. What are no floats is made of a row
// of floats that a thread has.
class ResultRows {
 public:
  ResultRows(at::IntArrayRef sizes, int64_t width, const at::TensorOptions& options)
      : tensor_(empty_result(sizes, options)), width_(width) {
    if (tensor_.scalar_type() != at::kByte) rows_.emplace(tensor_, width);
  }
  ResultRows(const at::Tensor& like, int64_t width, const StoredAs& as, const MovedRows& moved)
      : ResultRows(moved.map() ? at::IntArrayRef(moved.map()->sizes) : like.sizes(), width,
                   like.options().dtype(as.affine ? at::kByte : as.dtype.value_or(like.scalar_type()))) {
    const std::optional<Affine>& affine = as.affine;
    if (affine) rounding_.emplace(*affine);
    if (!moved.map()) return;
    const auto bytes = static_cast<size_t>(width * static_cast<int64_t>(tensor_.element_size()));
    auto* first = static_cast<char*>(tensor_.mutable_data_ptr());
    for (const int32_t row : moved.map()->zeros) {
      std::memset(first + static_cast<size_t>(row) * bytes, affine ? static_cast<int>(affine->zero_point) : 0, bytes);
    }
  }

  const at::Tensor& tensor() const { return tensor_; }
  bool are_floats() const { return tensor_.scalar_type() == at::kFloat; }

  // Row `i`, of which compute(floats) makes the floats, in `room` unless they are the result's own.
  template <typename Compute>
  float write(int64_t i, float* room, Compute&& compute) const {
    float* floats = rows_ ? rows_->place(i, room) : room;
    const float moment = compute(floats);
    if (rows_) {
      rows_->write(i, floats);
    } else {
      kernels().quantize.quantize(floats, 1, width_, nullptr, rounding_->inverse_scale, rounding_->zero_point,
                                  tensor_.mutable_data_ptr<uint8_t>() + i * width_);
    }
    return moment;
  }

 private:
  at::Tensor tensor_;
  int64_t width_;
  std::optional<AffineRounding> rounding_;
  std::optional<RowsToWrite> rows_;
};

const char* reason_for_aten_of_any_layout(const at::Tensor& tensor) {
  if (!has_float_rows(tensor)) return "an operand is no CPU tensor of float32 or 16 bits";
  if (wants_gradient(tensor)) return "an operand requires a gradient";
  return nullptr;
}

const char* reason_for_aten(const at::Tensor& tensor) {
  const char* reason = reason_for_aten_of_any_layout(tensor);
  return reason || tensor.is_contiguous() ? reason : "an operand is not contiguous";
}

// Of scale and shift, which have the dtype of x or float32, both the same. Undefined ones are none.
const char* reason_for_aten(const at::Tensor& x, std::initializer_list<at::Tensor> vectors,
                            at::IntArrayRef normalized_shape) {
  std::optional<at::ScalarType> dtype;
  for (const at::Tensor& vector : vectors) {
    if (!vector.defined()) continue;
    if (const char* reason = reason_for_aten(vector)) return reason;
    if (vector.sizes() != normalized_shape) return "the shapes do not fit";
    if (vector.scalar_type() != dtype.value_or(vector.scalar_type())) return "its weight and bias are of two dtypes";
    dtype = vector.scalar_type();
    if (dtype != at::kFloat && dtype != x.scalar_type()) return "its weight is of another dtype";
  }
  return nullptr;
}

// Whether the last dimensions of `x` are those of the weight, and there is something to normalise.
bool ends_in(const at::Tensor& x, at::IntArrayRef normalized_shape) {
  return x.numel() > 0 && x.sizes().size() >= normalized_shape.size() &&
         x.sizes().slice(x.sizes().size() - normalized_shape.size()) == normalized_shape;
}

// Whether `small` is `large` but for leading dimensions that it lacks or has once.
bool repeats_in(const at::Tensor& small, const at::Tensor& large) {
  const auto first = std::find_if(small.sizes().begin(), small.sizes().end(), [](int64_t size) { return size != 1; });
  const size_t kept = static_cast<size_t>(small.sizes().end() - first);
  return small.dim() <= large.dim() &&
         large.sizes().slice(large.sizes().size() - kept) == small.sizes().slice(small.sizes().size() - kept);
}

using OptionalTensor = std::optional<at::Tensor>;

at::Tensor in_floats(const OptionalTensor& vector) { return vector ? runtime::in_floats(*vector) : at::Tensor(); }

const float* data_of(const at::Tensor& vector) { return vector.defined() ? vector.const_data_ptr<float>() : nullptr; }

std::tuple<at::Tensor, at::Tensor> add_layer_norm(const at::Tensor& a, const at::Tensor& b,
                                                  at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                                                  const OptionalTensor& bias, double eps, bool keep_sum, bool in_place,
                                                  const StoredAs& as, const MovedRows& of_b = {},
                                                  const MovedRows& to_y = {}) {
  const char* reason = at::autocast::is_autocast_enabled(at::kCPU) ? "autocast is on" : reason_for_aten(a);
  if (!reason) reason = reason_for_aten(b);
  if (!reason && a.scalar_type() != b.scalar_type()) reason = "its operands are of two dtypes";
  if (!reason) {
    reason = reason_for_aten(a, {weight.value_or(at::Tensor()), bias.value_or(at::Tensor())}, normalized_shape);
  }
  const int64_t width = c10::multiply_integers(normalized_shape);
  const bool a_repeats = !of_b.map() && a.numel() < b.numel();
  const at::Tensor &large = a_repeats ? b : a, &small = a_repeats ? a : b;
  const bool fits = of_b.map() ? of_b.map()->sizes == a.sizes() : repeats_in(small, large);
  if (!reason && (!fits || (in_place && a.sizes() != large.sizes()))) reason = "an operand is broadcast";
  if (!reason && (!ends_in(large, normalized_shape) || small.numel() < width)) {
    reason = "the shapes do not fit";
  }
  if (!reason) {
    const int64_t rows = large.numel() / width;
    const int64_t period = of_b.map() ? rows : small.numel() / width;
    const ResultRows y(large, width, as, to_y);
    const at::Tensor sum = keep_sum ? empty_result(large.sizes(), large.options()) : at::Tensor();
    const auto to_sum = keep_sum ? std::optional(RowsToWrite(sum, width)) : std::nullopt;
    const RowsToRead from_large(large, width), from_small(small, width);
    const at::Tensor scale = in_floats(weight), shift = in_floats(bias);
    const float *from_scale = data_of(scale), *from_shift = data_of(shift);
    const NormKernels& norms = kernels().norms;
    const auto added = static_cast<float>(eps);
    const auto of_floats = [&](int64_t row, float* to) {
      return norms.add_layer_norm_row(from_large.row(row, nullptr), from_small.row(of_b.source(row % period), nullptr),
                                      from_scale, from_shift, added, width, to_sum ? to_sum->place(row, nullptr) : to,
                                      to);
    };
    const auto of_halves = [&](int64_t row, float* to) {
      from_large.add(row, from_small, of_b.source(row % period), to);
      if (to_sum) to_sum->write(row, to);
      return norms.layer_norm_row(to, from_scale, from_shift, added, width, to);
    };
    const bool is_float = large.scalar_type() == at::kFloat;
    const bool finite = for_each_row(rows, width, !y.are_floats(), [&](int64_t row, float* room) {
      return y.write(to_y.target(row), room,
                     [&](float* to) { return is_float ? of_floats(row, to) : of_halves(row, to); });
    });
    if (finite) return {y.tensor(), sum};
    reason = "a row is not finite";
  }
  const LeftToAten left(reason, "ipex::add_layer_norm");
  const at::Tensor moved = of_b.step_by_step(b), sum = in_place ? a.clone().add_(moved) : at::add(a, moved);
  const at::Tensor y = to_y.step_by_step(at::layer_norm(sum, normalized_shape, weight, bias, eps));
  return {stored(y, as), keep_sum ? sum : at::Tensor()};
}

// What the rows of a norm's result are added to, of their shape; or nothing.
class Residual {
 public:
  explicit Residual(const OptionalTensor& tensor) : tensor_(tensor) {}

  const char* reason_for_aten(const at::Tensor& x, at::IntArrayRef result_sizes) const {
    if (!tensor_) return nullptr;
    if (const char* reason = runtime::reason_for_aten(*tensor_)) return reason;
    if (tensor_->scalar_type() != at::kFloat || x.scalar_type() != at::kFloat) return "its sum is not of float32";
    return tensor_->sizes() == result_sizes ? nullptr : "its sum is broadcast";
  }

  // To the norm's row `i`, where it lies.
  void add_to(float* floats, int64_t i, int64_t width) const {
    if (tensor_) kernels().norms.add_row(tensor_->const_data_ptr<float>() + i * width, floats, width, floats);
  }

  at::Tensor plus(const at::Tensor& y) const { return tensor_ ? at::add(*tensor_, y) : y; }

 private:
  const OptionalTensor& tensor_;
};

at::Tensor layer_norm(const at::Tensor& x, at::IntArrayRef normalized_shape, const OptionalTensor& weight,
                      const OptionalTensor& bias, double eps, const StoredAs& as, const MovedRows& to_y = {},
                      const OptionalTensor& added = std::nullopt) {
  const Residual residual(added);
  const char* reason =
      at::autocast::is_autocast_enabled(at::kCPU) ? "autocast is on" : reason_for_aten_of_any_layout(x);
  if (!reason) {
    reason = reason_for_aten(x, {weight.value_or(at::Tensor()), bias.value_or(at::Tensor())}, normalized_shape);
  }
  if (!reason && !ends_in(x, normalized_shape)) reason = "the shapes do not fit";
  if (!reason) reason = residual.reason_for_aten(x, to_y.map() ? at::IntArrayRef(to_y.map()->sizes) : x.sizes());
  if (!reason) {
    const int64_t width = c10::multiply_integers(normalized_shape);
    const ResultRows y(x, width, as, to_y);
    const std::optional<int64_t> stride = row_stride(x, normalized_shape.size());
    const at::Tensor source = stride ? x : contiguous_result(x);
    const RowsToRead from_x(source, width, stride.value_or(width));
    const at::Tensor scale = in_floats(weight), shift = in_floats(bias);
    const float *from_scale = data_of(scale), *from_shift = data_of(shift);
    const auto layer_norm_row = kernels().norms.layer_norm_row;
    const bool needs_room = !y.are_floats() || is_half(x.scalar_type());
    const bool finite = for_each_row(x.numel() / width, width, needs_room, [&](int64_t row, float* room) {
      const int64_t target = to_y.target(row);
      if (target < 0) return 0.0F;  // it is cut off
      return y.write(target, room, [&](float* to) {
        const float moment =
            layer_norm_row(from_x.row(row, room), from_scale, from_shift, static_cast<float>(eps), width, to);
        residual.add_to(to, target, width);
        return moment;
      });
    });
    if (finite) return y.tensor();
    reason = "a row is not finite";
  }
  const LeftToAten left(reason, "ipex::layer_norm");
  const at::Tensor given = as.dtype ? restore_precision(x) : x;
  return stored(residual.plus(to_y.step_by_step(at::layer_norm(given, normalized_shape, weight, bias, eps))), as);
}

// What eager makes of `x`: a product with a scale for each row, which is contiguous.
Layout layout_of_scaled(const at::Tensor& x) {
  const Layout of_x = Layout::of(x);
  Layout scale = of_x, result;
  scale.sizes[static_cast<size_t>(x.dim() - 1)] = 1;
  scale.lay_out_as_new();
  result_layout({&of_x, &scale}, result);
  return result;
}

// The dimensions as they lie in memory, the outermost first, and the last one last.
at::DimVector in_order(const Layout& layout) {
  at::DimVector order(static_cast<size_t>(layout.dimensions));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end() - 1, [&](int64_t a, int64_t b) {
    return layout.strides[static_cast<size_t>(a)] > layout.strides[static_cast<size_t>(b)];
  });
  return order;
}

// The dimension along which rows lie side by side, element by element, in memory and in `result`. None where there is none.
std::optional<int64_t> dimension_of_columns(const at::Tensor& x, const Layout& result) {
  for (int64_t d = 0; d < x.dim() - 1; ++d) {
    if (x.size(d) > 1 && x.stride(d) == 1 && result.strides[static_cast<size_t>(d)] == 1) return d;
  }
  return std::nullopt;
}

// rms_norm of float32 whose rows lie side by side along dimension `side`, in the strides of `layout`. Undefined where a number is not
// finite.
at::Tensor rms_norm_of_columns(const at::Tensor& x, int64_t side, const Layout& layout, const OptionalTensor& weight,
                               float eps) {
  const at::Tensor y = empty_result({x.numel()}, x.options());
  y.unsafeGetTensorImpl()->set_sizes_and_strides(layout.all_sizes(), layout.all_strides());
  const at::Tensor scale = in_floats(weight);
  constexpr int64_t at_once = 64, elements_worth_waking = 16384;
  const int64_t last = x.dim() - 1, width = x.size(last), rows = x.size(side), blocks = at::divup(rows, at_once);
  const int64_t pieces = x.numel() / (width * rows) * blocks;
  std::atomic<bool> finite{true};
  parallel_for(pieces, grain_of(pieces, x.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % blocks * at_once;
      const float* from = x.const_data_ptr<float>() + first;
      float* to = y.mutable_data_ptr<float>() + first;
      int64_t number = i / blocks;
      for (int64_t d = 0; d < last; ++d) {
        if (d == side) continue;
        from += number % x.size(d) * x.stride(d);
        to += number % x.size(d) * y.stride(d);
        number /= x.size(d);
      }
      const float squares = kernels().norms.rms_norm_columns(from, x.stride(last), data_of(scale), eps, width,
                                                             std::min(at_once, rows - first), to, y.stride(last));
      if (!std::isfinite(squares)) finite = false;
    }
  });
  return finite ? y : at::Tensor();
}

at::Tensor rms_norm(const at::Tensor& x, const OptionalTensor& weight, std::optional<double> eps,
                    std::optional<at::ScalarType> dtype, at::OptionalIntArrayRef normalized_shape,
                    const OptionalTensor& added = std::nullopt, const OptionalTensor& like = std::nullopt) {
  const Residual residual(added);
  const char* reason =
      at::autocast::is_autocast_enabled(at::kCPU) ? "autocast is on" : reason_for_aten_of_any_layout(x);
  if (!reason && weight) reason = reason_for_aten(*weight);
  if (!reason && !eps && x.scalar_type() != at::kFloat) reason = "its eps is that of 16 bits";
  const at::ScalarType given = dtype.value_or(x.scalar_type());
  const at::ScalarType result = weight ? at::promote_types(weight->scalar_type(), given) : given;
  if (!reason && normalized_shape && weight && weight->scalar_type() != x.scalar_type()) {
    reason = "its weight is of another dtype";
  }
  // Float32 shows the roundings on the way, which we don't make.
  const bool is_all_float = x.scalar_type() == at::kFloat && dtype.value_or(at::kFloat) == at::kFloat;
  if (!reason && !is_half(result) && !(result == at::kFloat && is_all_float)) reason = "it is rounded on the way";
  const at::IntArrayRef shape = normalized_shape ? *normalized_shape
                                : weight         ? weight->sizes()
                                                 : x.sizes().slice(x.dim() - 1);
  if (!reason && (shape.size() != 1 || !ends_in(x, shape) || (weight && weight->sizes() != shape))) {
    reason = "the shapes do not fit";
  }
  if (!reason && x.dim() > Layout::most_dimensions) reason = "its input has many dimensions";
  if (!reason) reason = residual.reason_for_aten(x, x.sizes());
  if (!reason && like && like->scalar_type() != result) reason = "it is cast before it is added";
  // aten::rms_norm multiplies what is contiguous, in the memory format of its input.
  if (!reason && normalized_shape && !x.is_contiguous() && x.suggest_memory_format() != at::MemoryFormat::Contiguous) {
    reason = "its rows are not what lies innermost";
  }
  const auto own_eps = static_cast<float>(eps.value_or(std::numeric_limits<float>::epsilon()));
  std::optional<Layout> moved;
  std::optional<int64_t> side;
  if (!reason && !Layout::of(x).is_as_new() && (!normalized_shape || x.is_contiguous())) {
    moved = layout_of_scaled(x);
    if (shape[0] != 1 && moved->strides[static_cast<size_t>(x.dim() - 1)] != 1) {
      if (result == at::kFloat) side = dimension_of_columns(x, *moved);
      if (!side) reason = "its rows are not what lies innermost";
    }
  }
  if (!reason && moved && added) reason = "its sum is not contiguous";
  if (!reason && side) {
    at::Tensor y = rms_norm_of_columns(x, *side, *moved, weight, own_eps);
    if (y.defined()) return y;
    reason = "a row is not finite";
  }
  if (!reason) {
    const int64_t width = shape[0];
    const at::Tensor rows = moved ? x.permute(in_order(*moved)) : x;
    const ResultRows y(rows.sizes(), width, rows.options().dtype(result));
    const std::optional<int64_t> stride = row_stride(rows, 1);
    const at::Tensor source = stride ? rows : contiguous_result(rows);
    const RowsToRead from_x(source, width, stride.value_or(width));
    const at::Tensor scale = in_floats(weight);
    const float* from_scale = data_of(scale);
    const auto rms_norm_row = kernels().norms.rms_norm_row;
    const bool finite = for_each_row(x.numel() / width, width, !y.are_floats(), [&](int64_t row, float* room) {
      return y.write(row, room, [&](float* to) {
        const float moment = rms_norm_row(from_x.row(row, room), from_scale, own_eps, width, to);
        residual.add_to(to, row, width);
        return moment;
      });
    });
    if (moved) y.tensor().unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), moved->all_strides());
    if (finite) return y.tensor();
    reason = "a row is not finite";
  }
  const LeftToAten left(reason, "ipex::rms_norm");
  const auto in_dtype_of_like = [&](const at::Tensor& y) { return like ? y.type_as(*like) : y; };
  if (normalized_shape) return residual.plus(in_dtype_of_like(at::rms_norm(x, *normalized_shape, weight, eps)));
  const at::Tensor normalized = x * at::rsqrt(x.pow(2).mean(-1, /*keepdim=*/true) + eps.value());
  const at::Tensor cast = dtype ? normalized.to(*dtype) : normalized;
  return residual.plus(in_dtype_of_like(weight ? *weight * cast : cast));
}

using Moves = c10::intrusive_ptr<RowMoves>;
using TwoTensors = std::tuple<at::Tensor, at::Tensor>;

at::Tensor layer_norm_op(const StoredAs& as, const at::Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight,
                         const OptionalTensor& bias, double eps) {
  return layer_norm(x, shape, weight, bias, eps, as);
}

// Rows are those of the last dimension, which must be all that is normalised. What moves otherwise moves before or after.
bool are_rows(const MovedRows& moved, at::IntArrayRef normalized_shape) {
  return moved.map() && normalized_shape.size() == 1;
}

at::Tensor layer_norm_to_rows(const StoredAs& as, const at::Tensor& x, at::IntArrayRef shape,
                              const OptionalTensor& weight, const OptionalTensor& bias, double eps, const Moves& moves,
                              at::IntArrayRef numbers) {
  const MovedRows moved(*moves, numbers, x.sizes());
  if (are_rows(moved, shape)) return layer_norm(x, shape, weight, bias, eps, as, moved);
  const at::Tensor given = as.dtype ? restore_precision(x) : x;
  return stored(moved.step_by_step(layer_norm(given, shape, weight, bias, eps, {})), as);
}

// Where no rows are new, the norm comes first.
at::Tensor layer_norm_of_moved(const at::Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight,
                               const OptionalTensor& bias, double eps, const Moves& moves, at::IntArrayRef numbers,
                               const StoredAs& as, const OptionalTensor& residual) {
  const MovedRows moved(*moves, numbers, x.sizes());
  if (are_rows(moved, shape) && moved.map()->zeros.empty()) {
    return layer_norm(x, shape, weight, bias, eps, as, moved, residual);
  }
  return layer_norm(moved.step_by_step(x), shape, weight, bias, eps, as, {}, residual);
}

at::Tensor layer_norm_of_rows(const StoredAs& as, const at::Tensor& x, at::IntArrayRef shape,
                              const OptionalTensor& weight, const OptionalTensor& bias, double eps, const Moves& moves,
                              at::IntArrayRef numbers) {
  return layer_norm_of_moved(x, shape, weight, bias, eps, moves, numbers, as, std::nullopt);
}

at::Tensor layer_norm_sum(const at::Tensor& residual, const at::Tensor& x, at::IntArrayRef shape,
                          const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  return layer_norm(x, shape, weight, bias, eps, {}, {}, residual);
}

at::Tensor layer_norm_of_rows_sum(const at::Tensor& residual, const at::Tensor& x, at::IntArrayRef shape,
                                  const OptionalTensor& weight, const OptionalTensor& bias, double eps,
                                  const Moves& moves, at::IntArrayRef numbers) {
  return layer_norm_of_moved(x, shape, weight, bias, eps, moves, numbers, {}, residual);
}

at::Tensor rms_norm_op(const at::Tensor& x, const OptionalTensor& weight, std::optional<double> eps,
                       std::optional<at::ScalarType> dtype, at::OptionalIntArrayRef normalized_shape) {
  return rms_norm(x, weight, eps, dtype, normalized_shape);
}

at::Tensor rms_norm_sum(const at::Tensor& residual, const at::Tensor& x, const OptionalTensor& weight,
                        std::optional<double> eps, std::optional<at::ScalarType> dtype,
                        at::OptionalIntArrayRef normalized_shape, const OptionalTensor& like) {
  return rms_norm(x, weight, eps, dtype, normalized_shape, residual, like);
}

TwoTensors add_layer_norm_op(const StoredAs& as, const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape,
                             const OptionalTensor& weight, const OptionalTensor& bias, double eps, bool keep_sum,
                             bool in_place) {
  return add_layer_norm(a, b, shape, weight, bias, eps, keep_sum, in_place, as);
}

TwoTensors add_layer_norm_to_rows(const StoredAs& as, const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape,
                                  const OptionalTensor& weight, const OptionalTensor& bias, double eps, bool keep_sum,
                                  bool in_place, const Moves& moves, at::IntArrayRef numbers) {
  const MovedRows moved(*moves, numbers, at::infer_size_dimvector(a.sizes(), b.sizes()));
  if (are_rows(moved, shape) && moved.map()->keeps_all) {
    return add_layer_norm(a, b, shape, weight, bias, eps, keep_sum, in_place, as, {}, moved);
  }
  const auto [y, sum] = add_layer_norm(a, b, shape, weight, bias, eps, keep_sum, in_place, {});
  return {stored(moved.step_by_step(y), as), sum};
}

TwoTensors add_layer_norm_of_rows(const StoredAs& as, const at::Tensor& a, const at::Tensor& b, at::IntArrayRef shape,
                                  const OptionalTensor& weight, const OptionalTensor& bias, double eps, bool keep_sum,
                                  bool in_place, const Moves& moves, at::IntArrayRef numbers) {
  const MovedRows moved(*moves, numbers, b.sizes());
  if (are_rows(moved, shape) && moved.map()->zeros.empty() && moved.map()->sizes == a.sizes()) {
    return add_layer_norm(a, b, shape, weight, bias, eps, keep_sum, in_place, as, moved);
  }
  return add_layer_norm(a, moved.step_by_step(b), shape, weight, bias, eps, keep_sum, in_place, as);
}

// An op, and the same with 8-bit numbers, or numbers of 16 bits, for its first result. The last argument has a default where files are older than it.
template <typename Result, typename... Given>
void define_all(torch::Library& m, const char* op, const std::string& arguments,
                Result (*compute)(const StoredAs&, Given...), const char* by_default = "") {
  const char* results = std::is_same_v<Result, at::Tensor> ? ") -> Tensor" : ") -> (Tensor, Tensor)";
  define(m, c10::str(op, "(", arguments, by_default, results),
         [compute](Given... given) { return compute({}, given...); });
  define(m, c10::str(op, ".bytes(", arguments, ", float scale, int zero_point", results),
         [op, compute](Given... given, double scale, int64_t zero_point) {
           return compute({checked(op, {scale, zero_point}), {}}, given...);
         });
  define(m, c10::str(op, ".lowered(", arguments, ", ScalarType dtype", results),
         [op, compute](Given... given, at::ScalarType dtype) { return compute(lowered_to(op, dtype), given...); });
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  const std::string norm = "int[] normalized_shape, Tensor? weight, Tensor? bias, float eps";
  const std::string sum = "Tensor a, Tensor b, " + norm + ", bool keep_sum, bool in_place";
  const std::string moved = ", __torch__.torch.classes.ipex.RowMoves moves, int[] numbers";
  define_all(m, "ipex::layer_norm", "Tensor x, " + norm, layer_norm_op);
  define_all(m, "ipex::layer_norm_to_rows", "Tensor x, " + norm + moved, layer_norm_to_rows);
  define_all(m, "ipex::layer_norm_of_rows", "Tensor x, " + norm + moved, layer_norm_of_rows);
  define_all(m, "ipex::add_layer_norm", sum, add_layer_norm_op, "=False");
  define_all(m, "ipex::add_layer_norm_to_rows", sum + moved, add_layer_norm_to_rows);
  define_all(m, "ipex::add_layer_norm_of_rows", sum + moved, add_layer_norm_of_rows);
  const std::string rms = "Tensor x, Tensor? weight, float? eps, ScalarType? dtype, int[]? normalized_shape";
  const auto define_alone = [&](const std::string& schema, auto compute) { define(m, schema, compute); };
  define_alone("ipex::layer_norm_sum(Tensor residual, Tensor x, " + norm + ") -> Tensor", layer_norm_sum);
  define_alone("ipex::layer_norm_of_rows_sum(Tensor residual, Tensor x, " + norm + moved + ") -> Tensor",
               layer_norm_of_rows_sum);
  define_alone("ipex::rms_norm(" + rms + ") -> Tensor", rms_norm_op);
  define_alone("ipex::rms_norm_sum(Tensor residual, " + rms + ", Tensor? like) -> Tensor", rms_norm_sum);
}

}  // namespace
}  // namespace ipex::runtime
