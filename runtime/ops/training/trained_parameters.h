// The parameters of one optimizer, with their gradients, masters and states, as steps read and write them.
//
// Python makes one for all groups and keeps it from step to step: parameters and states are handed over once, and a step
// with thousands of small tensors asks each of them for its gradient and no more. A step is
//
//   collect()            looks at every gradient; says which parameters lack a state, and which the kernels don't take
//   set_state(..)        for those that lack one
//   sgd(..), adam(..)    the step, in one parallel region for all parameters of all groups
//
// On another device than the CPU the kernels are the caller's: begin_on_device(..) in place of sgd(..) says where everything
// lies and with which numbers it is updated, and finish_on_device() ends the step.
//
// Steps are methods and not ops: they write memory that no schema could show, and have no place in a graph.
#pragma once

#include <ATen/ATen.h>
#include <torch/custom_class.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace ipex::runtime {

struct TrainedParameter {
  at::Tensor parameter;
  // int16: the lower half of a split weight. float32: the weight, of which the parameter is a rounded copy. Undefined: the
  // parameter is the weight. Its version is kept at the parameter's: where they differ, somebody else wrote the parameter.
  at::Tensor master;
  std::array<at::Tensor, 3> state;  // undefined beyond those that the optimizer has
  at::Tensor step;                  // how often it was updated; undefined for optimizers that don't count
  int64_t group;
  bool has_state = false;
  bool is_checked = false;  // since its state was set: collect looks at all of them
  bool starts = false;      // the state is fresh

  // Of the step that is being taken.
  at::Tensor gradient;

  // Counts one step more, and says how many there were.
  double next_step() const;
  // Throws where it has fewer of the optimizer's states.
  void expect_states(size_t count, bool has_step) const;
};

class Update;

class TrainedParameters : public torch::CustomClassHolder {
 public:
  TrainedParameters(std::vector<at::Tensor> parameters, const std::vector<int64_t>& groups,
                    const c10::List<std::optional<at::Tensor>>& masters);
  ~TrainedParameters() override;

  void set_state(int64_t index, const std::vector<at::Tensor>& state, std::optional<at::Tensor> step, bool starts);

  // The indices of parameters with a gradient that lack a state, and of those that this can't update: on another
  // device, or of a kind that no kernel takes.
  std::tuple<std::vector<int64_t>, std::vector<int64_t>> collect(at::Device device);

  // Options of all groups, one after the other. Each .cpp file beside this has one, and says which options.
  void sgd(const std::vector<double>& options);
  void adagrad(const std::vector<double>& options);
  void adam(const std::vector<double>& options);
  void lamb(const std::vector<double>& options);
  void lars(const std::vector<double>& options);

  // What these would do, as tables on the CPU for kernels on a device: device_step.cpp says what is in them.
  std::tuple<at::Tensor, at::Tensor> begin_on_device(const std::string& kernel, const std::vector<double>& options);
  void finish_on_device();

 private:
  std::vector<TrainedParameter> all_;
  std::vector<int64_t> collected_;
  std::unique_ptr<Update> on_device_;  // between begin_on_device and finish_on_device

  friend class Update;
};

// One step: the memory of every collected parameter, and the threads' walk over it.
class Update {
 public:
  explicit Update(TrainedParameters& parameters);
  // Hands results back where a kernel worked on a copy, and lets go of the gradients.
  void finish();

  size_t size() const { return ranges_.size(); }
  const UpdateRange& range(size_t i) const { return ranges_[i]; }  // the whole parameter
  TrainedParameter& operator[](size_t i) const {
    return parameters_.all_[static_cast<size_t>(parameters_.collected_[i])];
  }

  // Calls step(i, range) for every piece of every parameter, on all threads.
  void for_each_piece(const std::function<void(size_t, const UpdateRange&)>& step) const;

  // The same in two passes, for steps that depend on norms of the whole parameter: norms(i, range) gives those of a piece,
  // weight(i, range, sums) gets the sums. Parameters of one piece are still in the cache for the second pass.
  using Norms = std::function<SquaredNorms(size_t, const UpdateRange&)>;
  using Weight = std::function<void(size_t, const UpdateRange&, const SquaredNorms&)>;
  void for_each_piece(const Norms& norms, const Weight& weight) const;

 private:
  struct Piece {
    size_t parameter;
    int64_t first, count;
  };

  void for_each(const std::vector<Piece>& pieces, const std::function<void(size_t piece)>& call) const;
  UpdateRange range_of(const Piece& piece) const;

  TrainedParameters& parameters_;
  std::vector<UpdateRange> ranges_;  // whole parameters
  std::vector<Piece> pieces_;
  std::vector<at::Tensor> copies_;                                // what ranges point into
  std::vector<std::pair<at::Tensor, at::Tensor>> to_write_back_;  // to, from
};

// Reads the options of one group in order.
class Options {
 public:
  Options(const std::vector<double>& all, int64_t group, int64_t count) : next_(all.data() + group * count) {
    TORCH_CHECK_VALUE(group >= 0 && (group + 1) * count <= static_cast<int64_t>(all.size()),
                      "ipex.TrainedParameters: expected ", count, " options for group ", group, ", got ", all.size(),
                      " for all groups.");
  }
  double number() { return *next_++; }
  bool flag() { return *next_++ != 0; }

 private:
  const double* next_;
};

}  // namespace ipex::runtime
