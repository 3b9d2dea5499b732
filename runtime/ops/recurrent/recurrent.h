// The part of a recurrent layer that does not depend on its cell: when the kernels may compute it, how the work is
// shared out, and what goes into a saved model.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "memory/result_memory.h"
#include "ops/recurrent/recurrent_weights.h"
#include "packed/facts.h"

namespace ipex::runtime {

class RecurrentOp : public torch::CustomClassHolder {
 public:
  explicit RecurrentOp(RecurrentSpec spec);

  // `states` holds the initial hidden state and, where the cell has one, its cell state. The result is what aten
  // returns: the outputs, then the final states.
  std::vector<at::Tensor> run(const at::Tensor& input, const std::vector<at::Tensor>& states) const;

  // Packs the weights now rather than at the first call.
  void ensure_packed() const { packed(); }

  State state() const { return save(saved_spec()); }
  std::vector<std::string> fallback_reasons() const { return reasons_.list(); }
  int64_t cached_primitives() const { return static_cast<int64_t>(primitive_math_modes().size()); }
  // Of what oneDNN has computed, layer by layer.
  std::vector<std::string> primitive_math_modes() const;
  Facts facts() const;

 protected:
  // The whole layer in aten, with gradients if the input wants them. `parameters` as aten lists them.
  virtual std::vector<at::Tensor> reference(const at::Tensor& input, const std::vector<at::Tensor>& states,
                                            const std::vector<at::Tensor>& parameters,
                                            const RecurrentSpec& spec) const = 0;

 private:
  // One direction of one layer, for all sequences.
  struct Direction {
    const PackedDirection& weights;
    PackedMatrix input_weight, hidden_weight, projection_weight;  // as this call reads them; empty where they are int8
    at::Tensor source;                                            // [time, batch, depth], dense in the last dimension
    at::Tensor result;                                            // [time, batch, width], a part of the layer's result
    at::Tensor hidden;                                            // [batch, width], the initial state
    at::Tensor last_hidden;                                       // [batch, width], to be written
    at::Tensor cell;  // [batch, units], the initial state and then the final one; undefined where there is none
    bool is_reversed;
    at::Tensor projected;  // [time * batch, columns], undefined where run_sequences computes it
  };

  // Throws the message that a user can act on when no implementation could take these.
  void check_shapes(const at::Tensor& input, const std::vector<at::Tensor>& states) const;
  const char* reason_for_aten(const at::Tensor& input, const std::vector<at::Tensor>& states) const;
  void run_layer(const std::vector<Direction>& directions) const;
  void run_by_amx(const std::vector<Direction>& directions) const;
  void run_sequences(const Direction& direction, int64_t first, int64_t last, bool share_tiles) const;
  // run_sequences with weights of int8: recurrent_bytes.cpp.
  void run_rounded_sequences(const Direction& direction, int64_t first, int64_t last, bool share) const;
  RecurrentSpec saved_spec() const;
  const std::vector<PackedDirection>& packed() const;

  const Cell& cell_;
  PinnedMathMode math_mode_;
  int64_t input_width_, units_, width_, layers_, directions_;
  bool has_biases_, is_batch_first_;
  StoredForms stored_;  // of the first weight, to tell for all

  // A context that is loaded packs when it first runs: see PackedOp.
  mutable std::once_flag packed_once_;
  mutable std::vector<DirectionWeights> unpacked_;  // until then
  mutable std::vector<PackedDirection> packed_;
  mutable FallbackReasons reasons_;
  KeepsResultMemory keeps_result_memory_;
};

}  // namespace ipex::runtime
