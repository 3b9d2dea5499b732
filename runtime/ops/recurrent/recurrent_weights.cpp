#include "ops/recurrent/recurrent_weights.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "aot/checksum.h"
#include "memory/weight_memory.h"
#include "ops/product/pairs.h"
#include "ops/product/round_weight.h"
#include "packed/expect_tensor.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// "weight_ih_l0_reverse", as torch.nn names it. Not by a stream, which without memory leaves out a part and says nothing.
std::string field(const char* role, int64_t index, int64_t directions) {
  return std::string(role) + "_l" + std::to_string(index / directions) + (index % directions ? "_reverse" : "");
}

constexpr std::pair<const char*, at::Tensor DirectionWeights::*> roles[] = {
    {"weight_ih", &DirectionWeights::input},
    {"weight_hh", &DirectionWeights::hidden},
    {"bias_ih", &DirectionWeights::input_bias},
    {"bias_hh", &DirectionWeights::hidden_bias},
    {"weight_hr", &DirectionWeights::projection}};

// Of weights of int8.
constexpr std::pair<const char*, at::Tensor DirectionWeights::*> scale_roles[] = {
    {"scales_ih", &DirectionWeights::input_scales},
    {"scales_hh", &DirectionWeights::hidden_scales},
    {"scales_hr", &DirectionWeights::projection_scales}};

// The weights that have scales, and these.
constexpr std::pair<at::Tensor DirectionWeights::*, at::Tensor DirectionWeights::*> scaled_weights[] = {
    {&DirectionWeights::input, &DirectionWeights::input_scales},
    {&DirectionWeights::hidden, &DirectionWeights::hidden_scales},
    {&DirectionWeights::projection, &DirectionWeights::projection_scales}};

// Calls use(role, tensor) for all that is saved of a direction.
template <typename Weights, typename Use>
void for_each_field(Weights& weights, Use&& use) {
  for (const auto& [role, member] : roles) use(role, weights.*member);
  for (const auto& [role, member] : scale_roles) use(role, weights.*member);
}

// All gates of as many units as fit into one register, then those of the next.
std::vector<int64_t> order_by_units(int64_t gates, int64_t units) {
  const int64_t width = kernels().recurrent.width;
  std::vector<int64_t> order;
  for (int64_t first = 0; first < units; first += width) {
    for (int64_t gate = 0; gate < gates; ++gate) {
      for (int64_t unit = first; unit < first + width; ++unit) {
        order.push_back(unit < units ? gate * units + unit : -1);
      }
    }
  }
  return order;
}

std::vector<int64_t> as_they_are(int64_t count) {
  std::vector<int64_t> order(count);
  for (int64_t i = 0; i < count; ++i) order[i] = i;
  return order;
}

// `values[order[i]]`, and zero where there is none.
at::Tensor reordered(const at::Tensor& values, const std::vector<int64_t>& order, int64_t count) {
  at::Tensor result = at::zeros({count}, at::kFloat);
  for (size_t i = 0; i < order.size(); ++i) {
    if (order[i] >= 0) result.data_ptr<float>()[i] = values.const_data_ptr<float>()[order[i]];
  }
  return result;
}

}  // namespace

void RecurrentSpec::check() const {
  const auto expect = [&](const at::Tensor& tensor, const char* role, size_t index, at::IntArrayRef sizes,
                          at::ScalarType dtype = at::kFloat) {
    expect_tensor(cell.name, field(role, static_cast<int64_t>(index), directions()), tensor, sizes, dtype);
    TORCH_CHECK(tensor.numel() > 0, cell.name, ": expected weights that are not empty, got ", text_of(tensor), damaged);
  };
  TORCH_CHECK(!weights.empty() && weights.size() % directions() == 0 && weights[0].input.defined() &&
                  weights[0].input.dim() == 2 && weights[0].hidden.defined() && weights[0].hidden.dim() == 2,
              cell.name, ": expected weight_ih_l0 and weight_hh_l0 with 2 dimensions, got none", damaged);
  const bool is_projected = weights[0].projection.defined();
  TORCH_CHECK(cell.has_cell_state || !is_projected, cell.name, ": expected no weight_hr_l0, got one", damaged);
  const int64_t gate_rows = cell.gates() * units();
  const auto expect_weight = [&](const at::Tensor& weight, const char* role, size_t index, int64_t rows, int64_t depth,
                                 const at::Tensor& scales, const char* role_of_scales) {
    expect(weight, role, index, {rows, depth}, cell.is_int8 ? at::kChar : at::kFloat);
    if (!cell.is_int8) return;
    expect(scales, role_of_scales, index, {rows, 1});
    TORCH_CHECK(depth <= most_depth_of_bytes, cell.name, ": expected at most ", most_depth_of_bytes,
                " inputs and units, got ", depth, ". Leave this layer in float32.");
  };
  for (size_t i = 0; i < weights.size(); ++i) {
    const bool is_first_layer = static_cast<int64_t>(i) < directions();
    expect_weight(weights[i].input, "weight_ih", i, gate_rows, is_first_layer ? input_width() : directions() * width(),
                  weights[i].input_scales, "scales_ih");
    expect_weight(weights[i].hidden, "weight_hh", i, gate_rows, is_projected ? width() : units(),
                  weights[i].hidden_scales, "scales_hh");
    if (has_biases()) {
      expect(weights[i].input_bias, "bias_ih", i, {gate_rows});
      expect(weights[i].hidden_bias, "bias_hh", i, {gate_rows});
    }
    if (is_projected) {
      expect_weight(weights[i].projection, "weight_hr", i, width(), units(), weights[i].projection_scales, "scales_hr");
    }
    TORCH_CHECK(has_biases() == weights[i].input_bias.defined() && has_biases() == weights[i].hidden_bias.defined() &&
                    is_projected == weights[i].projection.defined(),
                cell.name, ": expected biases and projections everywhere or nowhere, got some", damaged);
  }
}

RecurrentSpec from_parameters(const Cell& cell, const std::vector<at::Tensor>& parameters, bool has_biases,
                              int64_t layers, bool is_bidirectional, bool is_batch_first, PinnedMathMode math_mode) {
  RecurrentSpec spec{cell, {}, is_bidirectional, is_batch_first, math_mode};
  const int64_t count = layers * spec.directions();
  const int64_t without_projection = has_biases ? 4 : 2;
  const int64_t each = count > 0 ? static_cast<int64_t>(parameters.size()) / count : 0;
  TORCH_CHECK(count > 0 && each * count == static_cast<int64_t>(parameters.size()) &&
                  (each == without_projection || each == without_projection + 1),
              cell.name, ": expected ", without_projection, " or ", without_projection + 1, " weights for each of ",
              count, " layers and directions, got ", parameters.size(), " in all. Pass them as torch.nn lists them.");
  for (auto next = parameters.begin(); next != parameters.end();) {
    DirectionWeights& weights = spec.weights.emplace_back();
    for (const auto& [role, member] : roles) {
      const bool is_bias = member == &DirectionWeights::input_bias || member == &DirectionWeights::hidden_bias;
      const bool is_projection = member == &DirectionWeights::projection;
      const bool is_there = is_bias ? has_biases : !is_projection || each > without_projection;
      if (is_there) weights.*member = *next++;
    }
  }
  spec.check();
  return spec;
}

std::vector<at::Tensor> to_parameters(const RecurrentSpec& spec) {
  std::vector<at::Tensor> parameters;
  for (const DirectionWeights& weights : spec.weights) {
    for (const auto& [role, member] : roles) {
      if ((weights.*member).defined()) parameters.push_back(weights.*member);
    }
  }
  return parameters;
}

RecurrentSpec in_int8(const Cell& cell, const RecurrentSpec& spec) {
  RecurrentSpec result{cell, spec.weights, spec.is_bidirectional, spec.is_batch_first, std::nullopt};
  for (DirectionWeights& weights : result.weights) {
    for (const auto& [weight, scales] : scaled_weights) {
      if (!(weights.*weight).defined()) continue;
      const WeightInCodes rounded =
          round_weight(cell.name, weights.*weight, *low_bit_format("int8"), /*group_size=*/0, /*symmetric=*/true);
      weights.*weight = rounded.codes;
      weights.*scales = rounded.scales;
    }
  }
  result.check();
  return result;
}

RecurrentSpec in_floats(RecurrentSpec spec) {
  for (DirectionWeights& weights : spec.weights) {
    for (const auto& [weight, scales] : scaled_weights) {
      if ((weights.*scales).defined())
        weights.*weight = (weights.*weight).to(at::kFloat) * std::exchange(weights.*scales, {});
    }
  }
  return spec;
}

State save(const RecurrentSpec& spec) {
  c10::Dict<std::string, at::Tensor> tensors;
  for (size_t i = 0; i < spec.weights.size(); ++i) {
    for_each_field(spec.weights[i], [&](const char* role, const at::Tensor& tensor) {
      if (tensor.defined()) tensors.insert(field(role, static_cast<int64_t>(i), spec.directions()), tensor);
    });
  }
  c10::Dict<std::string, std::vector<int64_t>> integers;
  using Field = std::vector<int64_t>;
  integers.insert("layers", Field{spec.layers()});
  integers.insert("bidirectional", Field{spec.is_bidirectional});
  integers.insert("batch_first", Field{spec.is_batch_first});
  if (spec.math_mode) integers.insert("math_mode", Field{static_cast<int64_t>(*spec.math_mode)});
  return {/*version=*/spec.math_mode ? 2 : 1, tensors, integers, {}};
}

RecurrentSpec load(const Cell& cell, const State& state) {
  const StateReader reader(cell.name, state);
  const auto& tensors = std::get<1>(state);
  TORCH_CHECK(std::get<3>(state).empty(), cell.name, ": expected no post-ops, got ", std::get<3>(state),
              ". The model was written by a newer ipex: upgrade, or optimise it again.");
  RecurrentSpec spec{cell,
                     {},
                     reader.integers("bidirectional", 1, 0)[0] != 0,
                     reader.integers("batch_first", 1, 0)[0] != 0,
                     reader.math_mode()};
  const int64_t count = reader.integers("layers", 1, 1)[0] * spec.directions();
  for (int64_t i = 0; i < count; ++i) {
    DirectionWeights weights;
    for_each_field(weights, [&](const char* role, at::Tensor& tensor) {
      const std::string key = field(role, i, spec.directions());
      if (tensors.contains(key)) tensor = tensors.at(key);
    });
    TORCH_CHECK(weights.input.defined(), cell.name, ": expected a ", field("weight_ih", i, spec.directions()),
                ", got none", damaged);
    spec.weights.push_back(std::move(weights));
  }
  spec.check();
  return spec;
}

PackedColumns::PackedColumns(const at::Tensor& plain, std::vector<int64_t> order, TileShape tile)
    : order_(std::move(order)),
      depth_(plain.size(1)),
      rows_(plain.size(0)),
      panel_columns_(tile.in_panel * kernels().recurrent.width),
      stored_(plain.is_contiguous() ? StoredForms::of(plain, StoredForms::Plain::dropped) : StoredForms()),
      kind_(c10::str("columns, ", panel_columns_, " in a panel, ", tile.vectors, " vectors in a tile, order ",
                     checksum(order_.data(), order_.size() * sizeof(order_[0])))),
      data_(stored_.get(kind_, {at::kFloat, sizes(tile)}, [&] { return packed(plain, tile); })) {}

at::DimVector PackedColumns::sizes(TileShape tile) const {
  const int64_t tiles = at::divup(static_cast<int64_t>(order_.size()), tile.vectors * kernels().recurrent.width);
  return {tiles, tile.vectors / tile.in_panel, depth_, panel_columns_};
}

at::Tensor PackedColumns::packed(const at::Tensor& plain, TileShape tile) const {
  at::Tensor result = zero_weight(sizes(tile), at::kFloat);
  const at::Tensor dense = plain.contiguous();
  for (size_t column = 0; column < order_.size(); ++column) {
    if (order_[column] < 0) continue;
    const float* from = dense.const_data_ptr<float>() + order_[column] * depth_;
    float* to = result.data_ptr<float>() + offset(column);
    for (int64_t k = 0; k < depth_; ++k) to[k * panel_columns_] = from[k];
  }
  return result;
}

at::Tensor PackedColumns::unpack() const {
  at::Tensor plain = at::empty({rows_, depth_}, at::kFloat);
  for (size_t column = 0; column < order_.size(); ++column) {
    if (order_[column] < 0) continue;
    const float* from = data_.const_data_ptr<float>() + offset(column);
    float* to = plain.data_ptr<float>() + order_[column] * depth_;
    for (int64_t k = 0; k < depth_; ++k) to[k] = from[k * panel_columns_];
  }
  return plain;
}

at::Tensor PackedColumns::in_order() const { return data_.transpose(2, 3).reshape({columns(), depth_}); }

PackedMatrix PackedColumns::rounded_matrix() const {
  const at::Tensor* rounded = pairs_.get([&] {
    const FormShape shape{at::kInt, {data_.size(0) * data_.size(1) * at::divup(depth_, 2) * panel_columns_}};
    return std::make_unique<const at::Tensor>(
        stored_.get("bfloat16 pairs of " + kind_, shape, [&] { return in_pairs(); }));
  });
  return {NumberFormat::pairs, rounded->const_data_ptr(), depth_};
}

at::Tensor PackedColumns::in_pairs() const {
  const int64_t panels = data_.size(0) * data_.size(1), size = panel_columns_, words = at::divup(depth_, 2);
  const at::Tensor copy = empty_weight({panels * words * size}, at::kInt);
  auto* const pairs = static_cast<uint32_t*>(copy.data_ptr());
  parallel_for(panels * words, at::divup(words, 2), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t k = i % words * 2;
      const float* from = data_.const_data_ptr<float>() + (i / words * depth_ + k) * size;
      for (int64_t j = 0; j < size; ++j) pairs[i * size + j] = pair_of(from[j], k + 1 < depth_ ? from[size + j] : 0);
    }
  });
  return copy;
}

int64_t PackedColumns::offset(size_t column) const {
  const auto panel = static_cast<int64_t>(column) / panel_columns_;
  return panel * depth_ * panel_columns_ + static_cast<int64_t>(column) % panel_columns_;
}

PackedDirection::PackedDirection(const Cell& cell, const DirectionWeights& weights)
    : input_scales(weights.input_scales),
      hidden_scales(weights.hidden_scales),
      projection_scales(weights.projection_scales),
      is_projected(weights.projection.defined()),
      input_bias(weights.input_bias),
      hidden_bias(weights.hidden_bias) {
  const int64_t units = weights.input.size(0) / cell.gates();
  const std::vector<int64_t> order = order_by_units(cell.gates(), units);
  if (cell.is_int8) {
    const auto bytes = [](const at::Tensor& codes, const at::Tensor& scales, std::vector<int64_t> columns) {
      const at::Tensor dense = codes.contiguous();
      return std::make_unique<const PackedBytes>(dense, scales, StoredForms::of(dense, StoredForms::Plain::dropped),
                                                 std::move(columns));
    };
    input_bytes = bytes(weights.input, weights.input_scales, order);
    hidden_bytes = bytes(weights.hidden, weights.hidden_scales, order);
    if (is_projected) projection_bytes = bytes(weights.projection, weights.projection_scales, {});
  } else {
    input = PackedColumns(weights.input, order, projection_tile);
    hidden = PackedColumns(weights.hidden, order, cell.tile);
    if (is_projected)
      projection = PackedColumns(weights.projection, as_they_are(weights.projection.size(0)), projection_tile);
  }

  at::Tensor together = at::zeros({weights.input.size(0)}, at::kFloat);
  at::Tensor of_new = at::zeros({units}, at::kFloat);
  if (input_bias.defined()) {
    at::Tensor hidden_part = hidden_bias.clone();
    if (cell.has_hidden_bias_of_new) {
      at::Tensor last_gate = hidden_part.narrow(0, (cell.gates() - 1) * units, units);
      of_new.copy_(last_gate);
      last_gate.zero_();
    }
    together = input_bias + hidden_part;
  }
  start = reordered(together, order, cell.is_int8 ? input_bytes->columns() : input.columns());
  const int64_t width = kernels().recurrent.width;
  if (cell.has_hidden_bias_of_new) {
    new_start = reordered(of_new, as_they_are(units), at::divup(units, width) * width);
  }
}

at::Tensor PackedDirection::project_by_amx(const at::Tensor& rows) const {
  const auto make = [&] { return std::make_unique<AmxProjection>(input.in_order(), start, input.stored()); };
  return amx_projection.get(make)->run(rows);
}

DirectionWeights PackedDirection::unpack() const {
  const auto plain = [](const auto& bytes, const PackedColumns& floats) {
    return bytes ? bytes->codes() : floats.unpack();
  };
  return {plain(input_bytes, input),
          plain(hidden_bytes, hidden),
          input_bias,
          hidden_bias,
          is_projected ? plain(projection_bytes, projection) : at::Tensor(),
          input_scales,
          hidden_scales,
          projection_scales};
}

}  // namespace ipex::runtime
