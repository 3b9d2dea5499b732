// Normalisations of the last dimensions, in one pass over the rows.
//
//   ipex::layer_norm(x, normalized_shape, weight, bias, eps, ports) -> y
//     aten's.
//   ipex::rms_norm(x, weight, eps, cast, normalized_shape, ports) -> y
//     y = weight * (x * rsqrt(mean(x ** 2) + eps)).to(cast), or aten::rms_norm(x, ..) where there is a normalized_shape. Weight
//     and eps may be missing; then eps is that of float32.
//   ipex::layer_norm.of_sum, ipex::rms_norm.of_sum(a, b, .., keep_sum, in_place, ports) -> (y, sum)
//     the same of a + b. The sum is given back where the model needs it elsewhere, else it is undefined. In place of a, dtype and
//     shape of the sum are those of a; a itself is only read.
//
// The ports say what is done before and after it, in the same pass:
//
//   moves, numbers  by the steps of ops/layout/row_moves.h x, or b, is moved before: each row is read where it lies. Or, with
//   moves_result    y is moved: each row is written where it goes.
//   residual, like  y, in the dtype of `like` where there is one, is added to it
//   dtype           ipex::lower_precision(y, dtype); x stands for ipex::restore_precision(x), and may have 16 bits
//   rounded         with this scale and zero point, ipex::quantize(y, ..)
//
// The kernels take contiguous float32 (of one x also pieces of rows and rows in another order, of rms_norm rows side by side,
// and they copy the rest), and rows of 16 bits as floats: these are rounded once, where aten rounds the sum of a and b, and all
// that rms_norm is spelled out as. All else, and whatever overflows on the way, is computed by the aten ops that the model
// spelled out. A profiler shows them, with the reason, under the name of the op.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "ops/elementwise/eager_layout.h"
#include "ops/layout/row_moves.h"
#include "ops/norms/norm.h"
#include "ops/quantized/stored_as.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using at::Tensor;

// Calls moment = row(i, room) for each row on all threads. False when one of them is not finite: aten takes its sums in
// another order, so whether and where they overflow is for aten to say. `room` is for a row of floats that lies nowhere
// else, as where it has 16 bits in memory.
template <typename Row>
bool for_each_row(int64_t rows, int64_t width, bool needs_room, Row&& row) {
  constexpr int64_t elements_worth_waking = 16384;
  std::atomic<bool> finite{true};
  parallel_for(rows, grain_of(rows, rows * width, elements_worth_waking), [&](int64_t begin, int64_t end) {
    const Tensor memory = needs_room ? scratch(sizeof(float) * static_cast<size_t>(width)) : Tensor();
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
  ResultRows(const Tensor& x, at::ScalarType dtype, int64_t width, const StoredAs& as, const MovedRows& moved)
      : ResultRows(moved.map() ? at::IntArrayRef(moved.map()->sizes) : x.sizes(), width,
                   x.options().dtype(as.affine ? at::kByte : as.dtype.value_or(dtype))) {
    const std::optional<Affine>& affine = as.affine;
    if (affine) rounding_.emplace(*affine);
    if (!moved.map()) return;
    const auto bytes = static_cast<size_t>(width * static_cast<int64_t>(tensor_.element_size()));
    auto* first = static_cast<char*>(tensor_.mutable_data_ptr());
    for (const int32_t row : moved.map()->zeros) {
      std::memset(first + static_cast<size_t>(row) * bytes, affine ? static_cast<int>(affine->zero_point) : 0, bytes);
    }
  }

  const Tensor& tensor() const { return tensor_; }
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
  Tensor tensor_;
  int64_t width_;
  std::optional<AffineRounding> rounding_;
  std::optional<RowsToWrite> rows_;
};

// Whether `small` is `large` but for leading dimensions that it lacks or has once.
bool repeats_in(const Tensor& small, const Tensor& large) {
  const auto first = std::find_if(small.sizes().begin(), small.sizes().end(), [](int64_t size) { return size != 1; });
  const size_t kept = static_cast<size_t>(small.sizes().end() - first);
  return small.dim() <= large.dim() &&
         large.sizes().slice(large.sizes().size() - kept) == small.sizes().slice(small.sizes().size() - kept);
}

// What is done around a norm. The moves are those of what is read or, with moves_result, of y.
struct Ports {
  MovedRows moved = {};
  bool moves_result = false;
  OptionalTensor residual = {}, like = {};
  StoredAs as = {};

  // Rows are those of the last dimension, which must be all that is normalised. No row is new before a norm or a sum, of which
  // one of zeros is another.
  bool has_rows_for(at::IntArrayRef shape, bool is_of_sum) const {
    const RowMap* map = moved.map();
    if (!map || shape.size() != 1) return false;
    if (!map->zeros.empty() && (residual || !moves_result)) return false;
    return !moves_result || !is_of_sum || map->keeps_all;
  }
  const MovedRows& before() const { return moves_result ? stays() : moved; }
  const MovedRows& after() const { return moves_result ? moved : stays(); }
  bool moves() const { return moved.moves(); }

  const char* reason_for_aten(const Tensor& x, at::ScalarType result, at::IntArrayRef result_sizes) const {
    if (like && like->scalar_type() != result) return "it is cast before it is added";
    if (!residual) return nullptr;
    if (const char* reason = runtime::reason_for_aten(*residual)) return reason;
    if (residual->scalar_type() != at::kFloat || x.scalar_type() != at::kFloat) return "its sum is not of float32";
    return residual->sizes() == result_sizes ? nullptr : "its sum is broadcast";
  }

  // To row `i` of the result, where it lies.
  void add_to(float* floats, int64_t i, int64_t width) const {
    if (residual) kernels().norms.add_row(residual->const_data_ptr<float>() + i * width, floats, width, floats);
  }

  // Of what the norm gives, its rows moved.
  Tensor in_aten(const Tensor& y) const {
    const Tensor cast = like ? y.type_as(*like) : y;
    return stored(residual ? at::add(*residual, cast) : cast, as);
  }

 private:
  static const MovedRows& stays() {
    static const MovedRows none;
    return none;
  }
};

// What eager makes of `x`: a product with a scale for each row, which is contiguous.
Layout layout_of_scaled(const Tensor& x) {
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
std::optional<int64_t> dimension_of_columns(const Tensor& x, const Layout& result) {
  for (int64_t d = 0; d < x.dim() - 1; ++d) {
    if (x.size(d) > 1 && x.stride(d) == 1 && result.strides[static_cast<size_t>(d)] == 1) return d;
  }
  return std::nullopt;
}

// rms_norm of float32 whose rows lie side by side along dimension `side`, in the strides of `layout`. Undefined where a number
// is not finite.
Tensor norm_of_columns(const Norm& norm, const Tensor& x, int64_t side, const Layout& layout) {
  const Tensor y = empty_result({x.numel()}, x.options());
  y.unsafeGetTensorImpl()->set_sizes_and_strides(layout.all_sizes(), layout.all_strides());
  constexpr int64_t at_once = 64, elements_worth_waking = 16384;
  const int64_t last = x.dim() - 1, width = x.size(last), rows = x.size(side), blocks = at::divup(rows, at_once);
  const int64_t pieces = x.numel() / (width * rows) * blocks;
  const Norm::Kernel kernel(norm, width);
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
      const float squares =
          kernel.of_columns(from, x.stride(last), std::min(at_once, rows - first), to, y.stride(last));
      if (!std::isfinite(squares)) finite = false;
    }
  });
  return finite ? y : Tensor();
}

constexpr const char* not_finite = "a row is not finite";

// The rows of `x`, which the kernel takes. Undefined where one is not finite.
Tensor norm_of_rows(const Norm& norm, const Tensor& x, at::ScalarType result, const Ports& ports) {
  const at::IntArrayRef shape = norm.shape(x);
  const int64_t width = c10::multiply_integers(shape);
  const MovedRows& to = ports.moved;  // rows may as well be normalised first
  const ResultRows y(x, result, width, ports.as, to);
  const std::optional<int64_t> stride = row_stride(x, shape.size());
  const Tensor source = stride ? x : contiguous_result(x);
  const RowsToRead from_x(source, width, stride.value_or(width));
  const Norm::Kernel kernel(norm, width);
  const bool needs_room = !y.are_floats() || is_half(x.scalar_type());
  const bool finite = for_each_row(x.numel() / width, width, needs_room, [&](int64_t row, float* room) {
    const int64_t target = to.target(row);
    if (target < 0) return 0.0F;  // it is cut off
    return y.write(target, room, [&](float* floats) {
      const float moment = kernel.of_row(from_x.row(row, room), floats);
      ports.add_to(floats, target, width);
      return moment;
    });
  });
  return finite ? y.tensor() : Tensor();
}

// rms_norm has the strides of the product with a scale for each row, which is how models spell it out.
Tensor norm_in_eager_layout(const Norm& norm, const Tensor& x, at::ScalarType result, const Ports& ports,
                            const char*& reason) {
  Tensor y;
  const auto keeps_order = [&] { return norm.is_atens() && !x.is_contiguous(); };
  if (!norm.is_rms() || Layout::of(x).is_as_new() || keeps_order()) {
    y = norm_of_rows(norm, x, result, ports);
  } else {
    const Layout moved = layout_of_scaled(x);
    const bool has_rows = norm.shape(x)[0] == 1 || moved.strides[static_cast<size_t>(x.dim() - 1)] == 1;
    const bool is_all_float = result == at::kFloat && x.scalar_type() == at::kFloat;
    const bool is_plain = !ports.moves() && !ports.residual && !ports.as.affine && !ports.as.dtype;
    const auto side = is_all_float && is_plain && !has_rows ? dimension_of_columns(x, moved) : std::nullopt;
    if (!has_rows && !side) reason = "its rows are not what lies innermost";
    if (ports.residual) reason = "its sum is not contiguous";
    if (ports.moves()) reason = "its rows are not what lies innermost";
    if (reason) return {};
    if (side) {
      y = norm_of_columns(norm, x, *side, moved);
    } else {
      y = norm_of_rows(norm, x.permute(in_order(moved)), result, ports);
      if (y.defined()) y.unsafeGetTensorImpl()->set_sizes_and_strides(x.sizes(), moved.all_strides());
    }
  }
  if (!y.defined()) reason = not_finite;
  return y;
}

const char* reason_for_aten(const Norm& norm, const Tensor& x, at::ScalarType given, const Ports& ports) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (const char* reason = reason_for_aten_of_any_layout(x)) return reason;
  if (const char* reason = norm.reason_for_aten(x, given)) return reason;
  if (norm.is_rms()) {
    if (x.dim() > Layout::most_dimensions) return "its input has many dimensions";
    const bool is_turned = !x.is_contiguous() && x.suggest_memory_format() != at::MemoryFormat::Contiguous;
    if (norm.is_atens() && is_turned) return "its rows are not what lies innermost";
  }
  const RowMap* map = ports.moved.map();
  return ports.reason_for_aten(x, norm.result_dtype(given), map ? at::IntArrayRef(map->sizes) : x.sizes());
}

// Of one tensor whose rows, if they move, are rows.
Tensor norm_of(const Norm& norm, const Tensor& x, const Ports& ports) {
  const at::ScalarType given = ports.as.dtype && is_half(x.scalar_type()) ? at::kFloat : x.scalar_type();
  const char* reason = reason_for_aten(norm, x, given, ports);
  if (!reason) {
    const Tensor y = norm_in_eager_layout(norm, x, norm.result_dtype(given), ports, reason);
    if (!reason) return y;
  }
  const LeftToAten left(reason, norm.name());
  const Tensor floats = ports.as.dtype ? restore_precision(x) : x;
  return ports.in_aten(ports.after().step_by_step(norm.in_aten(ports.before().step_by_step(floats))));
}

// a + b where one of them may be repeated.
struct Sum {
  Sum(const Tensor& a, const Tensor& b, const MovedRows& of_b)
      : a_repeats(!of_b.map() && a.numel() < b.numel()), large(a_repeats ? b : a), small(a_repeats ? a : b) {}

  const bool a_repeats;
  const Tensor &large, &small;
};

const char* reason_for_aten(const Norm& norm, const Tensor& a, const Tensor& b, bool in_place, const Ports& ports) {
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (const char* reason = runtime::reason_for_aten(a)) return reason;
  if (const char* reason = runtime::reason_for_aten(b)) return reason;
  if (a.scalar_type() != b.scalar_type()) return "its operands are of two dtypes";
  const MovedRows& of_b = ports.before();
  const Sum sum(a, b, of_b);
  const bool fits = of_b.map() ? of_b.map()->sizes == a.sizes() : repeats_in(sum.small, sum.large);
  if (!fits || (in_place && a.sizes() != sum.large.sizes())) return "an operand is broadcast";
  if (const char* reason = norm.reason_for_aten(sum.large, a.scalar_type())) return reason;
  if (sum.small.numel() < c10::multiply_integers(norm.shape(sum.large))) return "the shapes do not fit";
  const RowMap* to_y = ports.after().map();
  return ports.reason_for_aten(a, norm.result_dtype(a.scalar_type()),
                               to_y ? at::IntArrayRef(to_y->sizes) : sum.large.sizes());
}

using TwoTensors = std::tuple<Tensor, Tensor>;

// Of a sum whose rows, if they move, are rows.
TwoTensors norm_of_sum(const Norm& norm, const Tensor& a, const Tensor& b, bool keep_sum, bool in_place,
                       const Ports& ports) {
  const MovedRows &of_b = ports.before(), &to_y = ports.after();
  const char* reason = reason_for_aten(norm, a, b, in_place, ports);
  if (!reason) {
    const auto& [a_repeats, large, small] = Sum(a, b, of_b);
    const int64_t width = c10::multiply_integers(norm.shape(large)), rows = large.numel() / width;
    const int64_t period = of_b.map() ? rows : small.numel() / width;
    const ResultRows y(large, norm.result_dtype(a.scalar_type()), width, ports.as, to_y);
    const Tensor sum = keep_sum ? empty_result(large.sizes(), large.options()) : Tensor();
    const auto to_sum = keep_sum ? std::optional(RowsToWrite(sum, width)) : std::nullopt;
    const RowsToRead from_large(large, width), from_small(small, width);
    const Norm::Kernel kernel(norm, width);
    const auto of_floats = [&](int64_t row, float* to) {
      return kernel.of_sum(from_large.row(row, nullptr), from_small.row(of_b.source(row % period), nullptr),
                           to_sum ? to_sum->place(row, nullptr) : to, to);
    };
    const auto of_halves = [&](int64_t row, float* to) {
      from_large.add(row, from_small, of_b.source(row % period), to);
      if (to_sum) to_sum->write(row, to);
      return kernel.of_row(to, to);
    };
    const bool is_float = large.scalar_type() == at::kFloat;
    const bool finite = for_each_row(rows, width, !y.are_floats(), [&](int64_t row, float* room) {
      const int64_t target = to_y.target(row);
      return y.write(target, room, [&](float* to) {
        const float moment = is_float ? of_floats(row, to) : of_halves(row, to);
        ports.add_to(to, target, width);
        return moment;
      });
    });
    if (finite) return {y.tensor(), sum};
    reason = not_finite;
  }
  const LeftToAten left(reason, norm.name());
  const Tensor moved = of_b.step_by_step(b), sum = in_place ? a.clone().add_(moved) : at::add(a, moved);
  return {ports.in_aten(to_y.step_by_step(norm.in_aten(sum))), keep_sum ? sum : Tensor()};
}

using Moves = std::optional<c10::intrusive_ptr<RowMoves>>;

// Out of a graph or a file; `sizes` are those of what moves.
Ports ports_of(const char* op, const Moves& moves, at::IntArrayRef numbers, bool moves_result, at::IntArrayRef sizes,
               const OptionalTensor& residual, const OptionalTensor& like, std::optional<at::ScalarType> dtype,
               const std::vector<double>& rounded) {
  Ports ports{.moves_result = moves_result, .residual = residual, .like = like, .as = lowered_to(op, dtype)};
  if (moves) ports.moved = MovedRows(**moves, numbers, sizes);
  ports.as.affine = affine_of(op, rounded);
  return ports;
}

// Ports of which the moves are made step by step, of what is read, or of y, which waits for the others then.
Ports without_moves(const Ports& ports) { return {.residual = ports.residual, .like = ports.like, .as = ports.as}; }

Tensor norm(const Norm& norm, const Tensor& x, const Ports& ports) {
  if (!ports.moves() || ports.has_rows_for(norm.shape(x), false)) return norm_of(norm, x, ports);
  if (!ports.moves_result) return norm_of(norm, ports.moved.step_by_step(x), without_moves(ports));
  const Tensor floats = ports.as.dtype ? restore_precision(x) : x;
  return ports.in_aten(ports.moved.step_by_step(norm_of(norm, floats, {})));
}

TwoTensors norm(const Norm& norm, const Tensor& a, const Tensor& b, bool keep_sum, bool in_place, const Ports& ports) {
  const bool has_rows =
      ports.has_rows_for(norm.shape(b), true) && (ports.moves_result || ports.moved.map()->sizes == a.sizes());
  if (!ports.moves() || has_rows) return norm_of_sum(norm, a, b, keep_sum, in_place, ports);
  if (!ports.moves_result) {
    return norm_of_sum(norm, a, ports.moved.step_by_step(b), keep_sum, in_place, without_moves(ports));
  }
  const auto [y, sum] = norm_of_sum(norm, a, b, keep_sum, in_place, {});
  return {ports.in_aten(ports.moved.step_by_step(y)), sum};
}

constexpr const char* layer_name = "ipex::layer_norm";
constexpr const char* rms_name = "ipex::rms_norm";

at::DimVector sizes_that_move(const Tensor& a, const Tensor& b, bool moves_result) {
  return moves_result ? at::infer_size_dimvector(a.sizes(), b.sizes()) : at::DimVector(b.sizes());
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  const std::string layer = "int[] normalized_shape, Tensor? weight, Tensor? bias, float eps";
  const std::string rms = "Tensor? weight, float? eps, ScalarType? cast, int[]? normalized_shape";
  const std::string ports =
      ", __torch__.torch.classes.ipex.RowMoves? moves=None, int[] numbers=[], bool moves_result=False, Tensor? "
      "residual=None, "
      "Tensor? like=None, ScalarType? dtype=None, float[] rounded=[]";
  const std::string of_x = "(Tensor x, ", of_sum = ".of_sum(Tensor a, Tensor b, ";
  const std::string kept = ", bool keep_sum, bool in_place=False", one = ") -> Tensor", two = ") -> (Tensor, Tensor)";
  define(m, layer_name + of_x + layer + ports + one,
         [](const Tensor& x, at::IntArrayRef shape, const OptionalTensor& weight, const OptionalTensor& bias,
            double eps, const Moves& moves, at::IntArrayRef numbers, bool moves_result, const OptionalTensor& residual,
            const OptionalTensor& like, std::optional<at::ScalarType> dtype, const std::vector<double>& rounded) {
           return norm(Norm::layer(shape, weight, bias, eps), x,
                       ports_of(layer_name, moves, numbers, moves_result, x.sizes(), residual, like, dtype, rounded));
         });
  define(m, layer_name + of_sum + layer + kept + ports + two,
         [](const Tensor& a, const Tensor& b, at::IntArrayRef shape, const OptionalTensor& weight,
            const OptionalTensor& bias, double eps, bool keep_sum, bool in_place, const Moves& moves,
            at::IntArrayRef numbers, bool moves_result, const OptionalTensor& residual, const OptionalTensor& like,
            std::optional<at::ScalarType> dtype, const std::vector<double>& rounded) {
           const at::DimVector sizes = moves ? sizes_that_move(a, b, moves_result) : at::DimVector();
           return norm(Norm::layer(shape, weight, bias, eps), a, b, keep_sum, in_place,
                       ports_of(layer_name, moves, numbers, moves_result, sizes, residual, like, dtype, rounded));
         });
  define(m, rms_name + of_x + rms + ports + one,
         [](const Tensor& x, const OptionalTensor& weight, std::optional<double> eps,
            std::optional<at::ScalarType> cast, at::OptionalIntArrayRef shape, const Moves& moves,
            at::IntArrayRef numbers, bool moves_result, const OptionalTensor& residual, const OptionalTensor& like,
            std::optional<at::ScalarType> dtype, const std::vector<double>& rounded) {
           return norm(Norm::rms(shape, weight, eps, cast), x,
                       ports_of(rms_name, moves, numbers, moves_result, x.sizes(), residual, like, dtype, rounded));
         });
  define(m, rms_name + of_sum + rms + kept + ports + two,
         [](const Tensor& a, const Tensor& b, const OptionalTensor& weight, std::optional<double> eps,
            std::optional<at::ScalarType> cast, at::OptionalIntArrayRef shape, bool keep_sum, bool in_place,
            const Moves& moves, at::IntArrayRef numbers, bool moves_result, const OptionalTensor& residual,
            const OptionalTensor& like, std::optional<at::ScalarType> dtype, const std::vector<double>& rounded) {
           const at::DimVector sizes = moves ? sizes_that_move(a, b, moves_result) : at::DimVector();
           return norm(Norm::rms(shape, weight, eps, cast), a, b, keep_sum, in_place,
                       ports_of(rms_name, moves, numbers, moves_result, sizes, residual, like, dtype, rounded));
         });
}

}  // namespace
}  // namespace ipex::runtime
