// The options that SGD and Lars share, in their order: learning rate, momentum, dampening, weight decay, nesterov.
#pragma once

#include "ops/training/trained_parameters.h"

namespace ipex::runtime {

inline SgdStep read_sgd_step(Options& options, bool starts_buffer) {
  SgdStep step{};
  step.learning_rate = static_cast<float>(options.number());
  const double momentum = options.number();
  step.momentum = static_cast<float>(momentum);
  step.has_momentum = momentum != 0;
  step.one_minus_dampening = static_cast<float>(1 - options.number());
  step.weight_decay = static_cast<float>(options.number());
  step.nesterov = options.flag();
  step.starts_buffer = starts_buffer;
  step.trust_ratio = 1;
  return step;
}

}  // namespace ipex::runtime
