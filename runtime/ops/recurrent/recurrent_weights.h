// The weights of a recurrent layer: as aten lists them, as a saved model names them, and as the kernels read them.
#pragma once

#include <vector>

#include "aot/stored_forms.h"
#include "kernels/kernels.h"
#include "ops/product/packed_bytes.h"
#include "ops/recurrent/amx_projection.h"
#include "packed/lazy.h"
#include "packed/packed_op.h"

namespace ipex::runtime {

// What tells one kind of recurrent layer from another.
struct Cell {
  const char* name;             // the run op, for messages
  TileShape tile;               // one vector per gate
  bool has_cell_state;          // and with it the option to project the hidden state
  bool has_hidden_bias_of_new;  // the bias of the last gate's hidden part can't be added to that of its input part
  int64_t gates() const { return tile.vectors; }
  void (*RecurrentKernels::*step)(const RecurrentStep&, int64_t first_tile, int64_t last_tile);
  // Whether weights are codes with a scale for each row, and inputs and hidden states are rounded when they are multiplied.
  bool is_int8 = false;
};

// One direction of one layer. Biases and projection are undefined where there are none, scales where weights are floats.
struct DirectionWeights {
  at::Tensor input, hidden, input_bias, hidden_bias, projection;
  at::Tensor input_scales, hidden_scales, projection_scales;  // [rows, 1]
};

struct RecurrentSpec {
  const Cell& cell;
  std::vector<DirectionWeights> weights;  // layer by layer, in each the forward direction first
  bool is_bidirectional;
  bool is_batch_first;
  PinnedMathMode math_mode;

  int64_t directions() const { return is_bidirectional ? 2 : 1; }
  int64_t layers() const { return static_cast<int64_t>(weights.size()) / directions(); }
  bool has_biases() const { return weights[0].input_bias.defined(); }
  int64_t input_width() const { return weights[0].input.size(1); }
  int64_t units() const { return weights[0].input.size(0) / cell.gates(); }
  // The width of the hidden state.
  int64_t width() const { return weights[0].hidden.size(1); }

  // Throws when the weights do not fit together, naming the one that doesn't.
  void check() const;
};

// `parameters` in aten's order: input, hidden, the two biases, projection, for each direction of each layer.
RecurrentSpec from_parameters(const Cell& cell, const std::vector<at::Tensor>& parameters, bool has_biases,
                              int64_t layers, bool is_bidirectional, bool is_batch_first, PinnedMathMode math_mode);
std::vector<at::Tensor> to_parameters(const RecurrentSpec& spec);

// With weights of int8, for a cell that has these; and the floats that such weights stand for.
RecurrentSpec in_int8(const Cell& cell, const RecurrentSpec& spec);
RecurrentSpec in_floats(RecurrentSpec spec);

State save(const RecurrentSpec& spec);
RecurrentSpec load(const Cell& cell, const State& state);

// A weight of [columns, depth] in the layout of kernels/recurrent.h.
class PackedColumns {
 public:
  PackedColumns() = default;
  // Column i is row order[i] of the plain weight, or zero where that is -1. The last tile is filled up with zeros.
  PackedColumns(const at::Tensor& plain, std::vector<int64_t> order, TileShape tile);

  at::Tensor unpack() const;
  // [columns, depth], in the order of the packed columns.
  at::Tensor in_order() const;
  PackedMatrix matrix() const { return {NumberFormat::floats, data_.const_data_ptr<float>(), depth_}; }
  // The same in pairs of bfloat16, a copy that is made at the first call and stays.
  PackedMatrix rounded_matrix() const;
  int64_t tiles() const { return data_.size(0); }
  // Columns with those that fill the last tile.
  int64_t columns() const { return depth_ ? data_.numel() / depth_ : 0; }
  int64_t depth() const { return depth_; }
  const StoredForms& stored() const { return stored_; }

 private:
  // Where the first element of the column is; the next ones are `panel_columns` apart.
  int64_t offset(size_t column) const;

  // Of data_.
  at::DimVector sizes(TileShape tile) const;
  at::Tensor packed(const at::Tensor& plain, TileShape tile) const;
  at::Tensor in_pairs() const;

  std::vector<int64_t> order_;
  int64_t depth_ = 0;
  int64_t rows_ = 0;
  int64_t panel_columns_ = 0;
  StoredForms stored_;
  std::string kind_;  // of form
  at::Tensor data_;   // [tiles, panels of a tile, depth, columns of a panel]
  Lazy<at::Tensor> pairs_;
};

// One direction of one layer, packed.
struct PackedDirection {
  PackedDirection(const Cell& cell, const DirectionWeights& weights);
  DirectionWeights unpack() const;
  // The projection of a dense [rows, depth] input, with a second copy of the weight that is made at the first call.
  // Undefined where oneDNN has nothing for it.
  at::Tensor project_by_amx(const at::Tensor& rows) const;

  PackedColumns input, hidden, projection;
  std::unique_ptr<const PackedBytes> input_bytes, hidden_bytes, projection_bytes;  // in their place in a cell of int8
  at::Tensor input_scales, hidden_scales, projection_scales;                       // of these, plain
  bool is_projected;
  at::Tensor input_bias, hidden_bias;  // plain
  at::Tensor start;                    // what the input projection begins with, in its order; undefined for zero
  at::Tensor new_start;  // what the hidden sums of the last gate begin with, where that can't be part of `start`
  Lazy<AmxProjection> amx_projection;
};

}  // namespace ipex::runtime
