// A layer with weights of int8, as recurrent.cpp computes one of floats:
//
//   for some time steps at once   projected = rounded(input) . W_ih^T + biases
//     for each of these steps     products = rounded(hidden) . W_hh^T
//                                 hidden, cell = step(projected[t] + products)
//                                 hidden = rounded(hidden) . W_hr^T                  where there is a projection
//
// `rounded` makes uint8 of a row, with a scale and a zero of its own. Sums are exact integers (kernels/bytes_product.h), and
// become floats at once: gates, states and results are float32.

#include <algorithm>
#include <numeric>
#include <utility>

#include "memory/scratch.h"
#include "ops/recurrent/recurrent.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// Work that is worth waking the other threads, in multiplications: more than in floats, as each takes less time.
constexpr int64_t multiplications_worth_waking = 1 << 18;
// Rows that are projected at once: enough for the kernel, few enough for the result to stay in cache.
constexpr int64_t most_projected_rows = 128;

// The parts of a piece of scratch memory, each from the start of a cache line.
class Parts {
 public:
  explicit Parts(uint8_t* memory) : next_(memory) {}
  static int64_t rounded_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

  float* floats(int64_t count) { return reinterpret_cast<float*>(take(count * static_cast<int64_t>(sizeof(float)))); }
  RoundedRows rows(int64_t count, int64_t width) { return {take(RoundedRows::size_of(count, width)), count, width}; }

 private:
  uint8_t* take(int64_t bytes) { return std::exchange(next_, next_ + rounded_up(bytes)); }

  uint8_t* next_;
};

// Calls work(first, last) for parts of `count`, from several threads where that is wanted and worth it.
template <typename Work>
void share_out(bool share, int64_t count, int64_t multiplications, Work&& work) {
  if (!share) return work(0, count);
  parallel_for(count, grain_of(count, multiplications, multiplications_worth_waking), work);
}

// Rows times weight, from panel to panel.
void multiply_rows(bool share, const PackedBytes& weight, const BytesProduct& product, int64_t rows) {
  share_out(share, weight.panels(), rows * weight.columns() * weight.inputs(),
            [&](int64_t first, int64_t last) { kernels().bytes_product.multiply(product, 0, rows, first, last); });
}

}  // namespace

void RecurrentOp::run_rounded_sequences(const Direction& direction, int64_t first, int64_t last, bool share) const {
  const PackedDirection& weights = direction.weights;
  const PackedBytes &input_weight = *weights.input_bytes, &hidden_weight = *weights.hidden_bytes;
  const at::Tensor &source = direction.source, &result = direction.result;
  const RecurrentKernels& recurrent = kernels().recurrent;
  const int64_t length = source.size(0), count = last - first, depth = source.size(2);
  const int64_t steps_at_once = std::clamp<int64_t>(most_projected_rows / count, 1, length);
  const int64_t columns = hidden_weight.columns(), rows_at_once = steps_at_once * count;
  const int64_t unprojected_rows = weights.is_projected ? count : 0;

  const auto floats = [](int64_t number) { return Parts::rounded_up(number * static_cast<int64_t>(sizeof(float))); };
  const auto rows = [](int64_t number, int64_t width) {
    return Parts::rounded_up(RoundedRows::size_of(number, width));
  };
  const at::Tensor memory =
      scratch(floats(rows_at_once * columns) + floats(count * columns) + floats(unprojected_rows * units_) +
              rows(rows_at_once, depth) + rows(count, width_) + rows(unprojected_rows, units_));
  Parts parts(memory.mutable_data_ptr<uint8_t>());
  float* const projected = parts.floats(rows_at_once * columns);
  float* const products = parts.floats(count * columns);
  float* const unprojected = parts.floats(unprojected_rows * units_);
  const RoundedRows inputs = parts.rows(rows_at_once, depth), states = parts.rows(count, width_),
                    unprojected_states = parts.rows(unprojected_rows, units_);

  const ElementwiseSteps with_biases{weights.start.const_data_ptr<float>(), nullptr, 0, columns};
  const ElementwiseSteps none{nullptr, nullptr, 0, columns}, none_of_projection{nullptr, nullptr, 0, width_};
  const BytesProduct projection = input_weight.product(inputs, 0, with_biases, projected, columns);
  const BytesProduct of_states = hidden_weight.product(states, 0, none, products, columns);
  // What a thread computes at once of a step: whole panels of the product, and the whole tiles that they make up.
  const int64_t panel_columns = kernels().bytes_product.panel_columns, tile_columns = cell_.gates() * recurrent.width;
  const int64_t piece = std::lcm(panel_columns, tile_columns), pieces = at::divup(columns, piece);

  const float* from = direction.hidden.const_data_ptr<float>() + first * width_;
  int64_t from_stride = width_;
  const auto time = [&](int64_t step) { return direction.is_reversed ? length - 1 - step : step; };
  for (int64_t begin = 0; begin < length; begin += steps_at_once) {
    const int64_t steps = std::min(steps_at_once, length - begin);
    share_out(share, steps * count, steps * count * depth, [&](int64_t first_row, int64_t last_row) {
      for (int64_t i = first_row; i < last_row; ++i) {
        inputs.round(i, source.const_data_ptr<float>() + time(begin + i / count) * source.stride(0) +
                            (first + i % count) * source.stride(1));
      }
    });
    multiply_rows(share, input_weight, projection, steps * count);

    for (int64_t step = 0; step < steps; ++step) {
      float* const to = result.data_ptr<float>() + time(begin + step) * result.stride(0) + first * result.stride(1);
      for (int64_t i = 0; i < count; ++i) states.round(i, from + i * from_stride);
      const RecurrentStep work{
          .row_count = count,
          .units = units_,
          .weight = {},
          .products = products,
          .products_stride = columns,
          .projected = projected + step * count * columns,
          .projected_stride = columns,
          .hidden = from,
          .hidden_stride = from_stride,
          .new_hidden = weights.is_projected ? unprojected : to,
          .new_hidden_stride = weights.is_projected ? units_ : result.stride(1),
          .cell = direction.cell.defined() ? direction.cell.data_ptr<float>() + first * units_ : nullptr,
          .new_start = weights.new_start.defined() ? weights.new_start.const_data_ptr<float>() : nullptr};
      share_out(share, pieces, count * columns * width_, [&](int64_t first_piece, int64_t last_piece) {
        const int64_t begin_column = first_piece * piece, end_column = std::min(last_piece * piece, columns);
        kernels().bytes_product.multiply(of_states, 0, count, begin_column / panel_columns,
                                         at::divup(end_column, panel_columns));
        (recurrent.*cell_.step)(work, begin_column / tile_columns, end_column / tile_columns);
      });
      if (weights.is_projected) {
        for (int64_t i = 0; i < count; ++i) unprojected_states.round(i, unprojected + i * units_);
        const PackedBytes& narrowing = *weights.projection_bytes;
        multiply_rows(share, narrowing,
                      narrowing.product(unprojected_states, 0, none_of_projection, to, result.stride(1)), count);
      }
      from = to;
      from_stride = result.stride(1);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(from + i * from_stride, width_, direction.last_hidden.data_ptr<float>() + (first + i) * width_);
  }
}

}  // namespace ipex::runtime
