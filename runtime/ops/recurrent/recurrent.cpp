// How a layer is computed:
//
//   for some time steps at once   projected = input . W_ih^T + biases       so many that the rows fill the kernel
//     for each of these steps     hidden, cell = step(projected[t] + hidden . W_hh^T)     gates in registers
//                                 hidden = hidden . W_hr^T                                where there is a projection
//
// The hidden state lives in the result: each step reads the row before and writes its own. Nothing is allocated per
// step. Threads take sequences of the batch or directions, and then need not wait for each other until the layer is
// done; where these are too few they share the units of each step.
//
// In math mode BF32, products that wait for memory read their weight in bfloat16; states and sums stay float32. With AMX,
// oneDNN computes large input projections, for all sequences and directions before any step of theirs. See
// docs/decisions/reduced_precision.md.
#include "ops/recurrent/recurrent.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "packed/call_conditions.h"
#include "threads/grain.h"
#include "threads/parallel.h"
#include "threads/thread_count.h"

namespace ipex::runtime {
namespace {

// Work that is worth waking the other threads, in multiplications.
constexpr int64_t worth_waking = 1 << 16;
// Sequences that a thread must have to use the kernels well.
constexpr int64_t sequences_worth_a_thread = 8;
// Rows that are projected at once: enough for the kernel, few enough for the result to stay in cache.
constexpr int64_t rows_at_once = 128;
// The same where oneDNN does it.
constexpr int64_t rows_at_once_by_amx = 1024;

// Whether the product of this many rows waits for memory. Asked with the rows of the whole batch, so that the number of
// threads does not change the result.
bool waits_for_memory(int64_t rows, const PackedColumns& weight) {
  constexpr int64_t few_rows = 2, some_rows = 32;
  constexpr int64_t elements_for_few = 1 << 17, elements_for_some = 1 << 21;
  return rows <= some_rows &&
         weight.columns() * weight.depth() >= (rows <= few_rows ? elements_for_few : elements_for_some);
}

at::Tensor detached(const at::Tensor& tensor) { return tensor.defined() ? tensor.detach() : tensor; }
at::Tensor own_copy(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.detach().clone(at::MemoryFormat::Contiguous) : tensor;
}

// Calls kernel(work, first, last) for all tiles, from several threads where that is wanted and worth it.
template <typename Work>
void for_tiles(bool share, void (*kernel)(const Work&, int64_t, int64_t), const Work& work, int64_t tiles,
               int64_t multiplications) {
  if (!share) return kernel(work, 0, tiles);
  const int64_t grain = grain_of(tiles, multiplications, worth_waking);
  parallel_for(tiles, grain, [&](int64_t first, int64_t last) { kernel(work, first, last); });
}

}  // namespace

RecurrentOp::RecurrentOp(RecurrentSpec spec)
    : cell_(spec.cell),
      math_mode_(spec.math_mode),
      input_width_(spec.input_width()),
      units_(spec.units()),
      width_(spec.width()),
      layers_(spec.layers()),
      directions_(spec.directions()),
      has_biases_(spec.has_biases()),
      is_batch_first_(spec.is_batch_first),
      stored_(StoredForms::of(spec.weights[0].input, StoredForms::Plain::dropped)) {
  for (const at::Tensor& weight : to_parameters(spec)) {
    TORCH_CHECK(has_all_its_memory(weight), cell_.name, ": expected weights with their memory, got one of ",
                weight.sizes(), " whose storage has ", weight.storage().nbytes(), " bytes. Don't resize storages.");
  }
  for (const DirectionWeights& weights : spec.weights) {
    DirectionWeights& own = unpacked_.emplace_back(weights);
    for (at::Tensor* tensor : {&own.input, &own.hidden, &own.projection}) *tensor = detached(*tensor);
    for (at::Tensor* bias : {&own.input_bias, &own.hidden_bias}) *bias = own_copy(*bias);
    for (at::Tensor* scales : {&own.input_scales, &own.hidden_scales, &own.projection_scales})
      *scales = own_copy(*scales);
  }
}

std::vector<at::Tensor> RecurrentOp::run(const at::Tensor& input, const std::vector<at::Tensor>& states) const {
  check_shapes(input, states);
  if (const char* reason = reason_for_aten(input, states)) {
    reasons_.remember(reason);
    const RecurrentSpec spec = in_floats(saved_spec());
    return reference(input, states, to_parameters(spec), spec);
  }
  at::Tensor source = is_batch_first_ ? input.transpose(0, 1) : input;
  if (source.stride(2) != 1) source = source.contiguous();
  const at::Tensor hidden = states[0].contiguous();
  const at::Tensor last_hidden = empty_result(hidden.sizes(), hidden.options());
  at::Tensor cell;
  if (cell_.has_cell_state) cell = states[1].clone(at::MemoryFormat::Contiguous);
  const bool may_round = !cell_.is_int8 && math_mode_now(math_mode_) == FP32MathMode::BF32;
  const auto matrix = [&](const PackedColumns& weight, int64_t rows) {
    if (weight.columns() == 0) return PackedMatrix();
    return may_round && waits_for_memory(rows, weight) ? weight.rounded_matrix() : weight.matrix();
  };
  const int64_t batch = source.size(1), rows = source.size(0) * batch;
  for (int64_t layer = 0; layer < layers_; ++layer) {
    const at::Tensor result = empty_result({source.size(0), source.size(1), directions_ * width_}, source.options());
    std::vector<Direction> directions;
    bool is_by_amx = may_round;
    for (int64_t i = 0; i < directions_; ++i) {
      const int64_t index = layer * directions_ + i;
      const PackedDirection& weights = packed()[index];
      directions.push_back({weights, matrix(weights.input, rows), matrix(weights.hidden, batch),
                            matrix(weights.projection, batch), source, result.narrow(2, i * width_, width_),
                            hidden[index], last_hidden[index], cell.defined() ? cell[index] : at::Tensor(), i == 1,
                            at::Tensor()});
      is_by_amx = is_by_amx && AmxProjection::is_worth_it(rows, weights.input.columns() * weights.input.depth());
    }
    is_by_amx ? run_by_amx(directions) : run_layer(directions);
    source = result;
  }
  std::vector<at::Tensor> results{is_batch_first_ ? source.transpose(0, 1) : source, last_hidden};
  if (cell.defined()) results.push_back(cell);
  return results;
}

void RecurrentOp::check_shapes(const at::Tensor& input, const std::vector<at::Tensor>& states) const {
  // Not left to aten: its lstm would read past the end of the weights.
  TORCH_CHECK(input.dim() == 3 && input.size(2) == input_width_, cell_.name, ": expected input of ",
              is_batch_first_ ? "[batch, time, " : "[time, batch, ", input_width_, "], got ", input.sizes(), ".");
  for (size_t i = 0; i < states.size(); ++i) {
    const std::vector<int64_t> sizes{layers_ * directions_, input.size(is_batch_first_ ? 0 : 1),
                                     i == 0 ? width_ : units_};
    TORCH_CHECK(states[i].sizes() == at::IntArrayRef(sizes), cell_.name, ": expected ",
                i == 0 ? "a hidden state" : "a cell state", " of ", sizes, ", got ", states[i].sizes(), ".");
  }
}

const char* RecurrentOp::reason_for_aten(const at::Tensor& input, const std::vector<at::Tensor>& states) const {
  if (!is_plain_cpu_float(input)) return "the input is not a float32 CPU tensor";
  if (wants_gradient(input)) return "the input requires a gradient";
  for (const at::Tensor& state : states) {
    if (!is_plain_cpu_float(state)) return "the initial state is not a float32 CPU tensor";
    if (wants_gradient(state)) return "the initial state requires a gradient";
  }
  if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
  if (input.numel() == 0) return "the input is empty";
  return nullptr;
}

// Some steps at a time, so that what is projected stays small.
void RecurrentOp::run_by_amx(const std::vector<Direction>& directions) const {
  const int64_t length = directions[0].source.size(0), batch = directions[0].source.size(1);
  const int64_t steps_at_once = std::max<int64_t>(1, rows_at_once_by_amx / batch);
  for (int64_t begin = 0; begin < length; begin += steps_at_once) {
    const int64_t steps = std::min(steps_at_once, length - begin);
    std::vector<Direction> parts;
    for (const Direction& whole : directions) {
      Direction& part = parts.emplace_back(whole);
      const int64_t first = whole.is_reversed ? length - begin - steps : begin;
      part.source = whole.source.narrow(0, first, steps);
      part.result = whole.result.narrow(0, first, steps);
      if (begin > 0) part.hidden = whole.last_hidden;
      part.projected = whole.weights.project_by_amx(part.source.reshape({steps * batch, -1}).contiguous());
    }
    run_layer(parts);
  }
}

void RecurrentOp::run_layer(const std::vector<Direction>& directions) const {
  const int64_t batch = directions[0].source.size(1);
  const int64_t threads = thread_count();
  const int64_t parts = std::clamp<int64_t>(batch / sequences_worth_a_thread, 1, at::divup(threads, directions_));
  if (directions_ * parts < threads) {
    for (const Direction& direction : directions) run_sequences(direction, 0, batch, /*share_tiles=*/true);
    return;
  }
  const int64_t multiplications = directions[0].source.numel() * width_ * cell_.gates();  // more or less
  const int64_t grain = grain_of(directions_ * parts, multiplications, worth_waking);
  parallel_for(directions_ * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i / directions_;
      run_sequences(directions[i % directions_], batch * part / parts, batch * (part + 1) / parts, false);
    }
  });
}

void RecurrentOp::run_sequences(const Direction& direction, int64_t first, int64_t last, bool share_tiles) const {
  if (cell_.is_int8) return run_rounded_sequences(direction, first, last, share_tiles);
  const auto& [weights, input_weight, hidden_weight, projection_weight, source, result, hidden, last_hidden, cell,
               is_reversed, projected] = direction;
  const RecurrentKernels& recurrent = kernels().recurrent;
  const int64_t length = source.size(0), count = last - first;
  const int64_t steps_at_once = std::clamp<int64_t>(rows_at_once / count, 1, length);
  const int64_t columns = weights.input.columns();
  const float* projected_by_amx = projected.defined() ? projected.const_data_ptr<float>() : nullptr;
  std::vector<const float*> rows(steps_at_once * count);
  std::vector<const float*> unprojected_rows(weights.is_projected ? count : 0);
  const auto scratch = std::make_unique_for_overwrite<float[]>(projected_by_amx ? 0 : rows.size() * columns);
  const auto unprojected = std::make_unique_for_overwrite<float[]>(unprojected_rows.size() * units_);
  for (size_t i = 0; i < unprojected_rows.size(); ++i) unprojected_rows[i] = unprojected.get() + i * units_;

  const float* from = hidden.const_data_ptr<float>() + first * width_;
  int64_t from_stride = width_;
  const auto time = [&](int64_t step) { return is_reversed ? length - 1 - step : step; };
  for (int64_t begin = 0; begin < length; begin += steps_at_once) {
    const int64_t steps = std::min(steps_at_once, length - begin);
    for (int64_t i = 0; i < steps * count; ++i) {
      rows[i] = source.const_data_ptr<float>() + time(begin + i / count) * source.stride(0) +
                (first + i % count) * source.stride(1);
    }
    const Projection projection{rows.data(),   steps * count, input_weight, weights.start.const_data_ptr<float>(),
                                scratch.get(), columns,       columns};
    if (!projected_by_amx) {
      for_tiles(share_tiles, recurrent.project, projection, weights.input.tiles(),
                steps * count * columns * weights.input.depth());
    }

    for (int64_t step = 0; step < steps; ++step) {
      float* to = result.data_ptr<float>() + time(begin + step) * result.stride(0) + first * result.stride(1);
      const RecurrentStep work{count,
                               units_,
                               hidden_weight,
                               /*products=*/nullptr,
                               /*products_stride=*/0,
                               projected_by_amx
                                   ? projected_by_amx + (time(begin + step) * source.size(1) + first) * columns
                                   : scratch.get() + step * count * columns,
                               columns,
                               from,
                               from_stride,
                               weights.is_projected ? unprojected.get() : to,
                               weights.is_projected ? units_ : result.stride(1),
                               cell.defined() ? cell.data_ptr<float>() + first * units_ : nullptr,
                               weights.new_start.defined() ? weights.new_start.const_data_ptr<float>() : nullptr};
      for_tiles(share_tiles, recurrent.*cell_.step, work, weights.hidden.tiles(),
                count * weights.hidden.columns() * width_);
      if (weights.is_projected) {
        const Projection narrowed{unprojected_rows.data(), count, projection_weight, nullptr, to,
                                  result.stride(1),        width_};
        for_tiles(share_tiles, recurrent.project, narrowed, weights.projection.tiles(), count * width_ * units_);
      }
      from = to;
      from_stride = result.stride(1);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(from + i * from_stride, width_, last_hidden.data_ptr<float>() + (first + i) * width_);
  }
}

const std::vector<PackedDirection>& RecurrentOp::packed() const {
  std::call_once(packed_once_, [&] {
    // Where memory runs out, the next call goes on from there.
    while (packed_.size() < unpacked_.size()) {
      DirectionWeights& weights = unpacked_[packed_.size()];
      packed_.emplace_back(cell_, weights);
      weights = {};
    }
    unpacked_.clear();
  });
  return packed_;
}

RecurrentSpec RecurrentOp::saved_spec() const {
  const OutsideOfPythonModes outside;
  RecurrentSpec spec{cell_, {}, directions_ == 2, is_batch_first_, math_mode_};
  for (const PackedDirection& direction : packed()) spec.weights.push_back(direction.unpack());
  return spec;
}

std::vector<std::string> RecurrentOp::primitive_math_modes() const {
  std::vector<std::string> modes;
  for (const PackedDirection& direction : packed()) {
    const AmxProjection* projection = direction.amx_projection.peek();
    if (!projection) continue;
    for (std::string& mode : projection->math_modes()) modes.push_back(std::move(mode));
  }
  return modes;
}

Facts RecurrentOp::facts() const {
  Facts facts{cell_.name,
              {{"input", input_width_},
               {"hidden", units_},
               {"state", width_},
               {"layers", layers_},
               {"directions", directions_},
               {"biases", has_biases_},
               {"batch_first", is_batch_first_}}};
  if (cell_.is_int8) {
    facts.add({{"weight_format", "int8"}, {"rows", "uint8, quantised in each call"}});
  } else {
    facts.add({{"math_mode", runtime::describe(math_mode_)}});
  }
  facts.add_if_any("packed", stored_.describe());
  return facts;
}

}  // namespace ipex::runtime
