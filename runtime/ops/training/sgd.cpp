// Options of a group: learning rate, momentum, dampening, weight decay, nesterov, gradient scale.
#include <ATen/record_function.h>

#include "ops/training/trained_parameters.h"

namespace ipex::runtime {

void TrainedParameters::sgd(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::sgd_step", {});
  Update update(*this);
  std::vector<SgdStep> steps(update.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 6);
    SgdStep& step = steps[i];
    step.learning_rate = static_cast<float>(of.number());
    const double momentum = of.number();
    step.momentum = static_cast<float>(momentum);
    step.has_momentum = momentum != 0;
    step.one_minus_dampening = static_cast<float>(1 - of.number());
    step.weight_decay = static_cast<float>(of.number());
    step.nesterov = of.flag();
    step.gradient_scale = static_cast<float>(of.number());
    step.starts_buffer = update[i].starts;
    step.trust_ratio = 1;
  }
  const auto step = kernels().updates.sgd;
  update.for_each_piece([&](size_t i, const UpdateRange& range) { step(range, steps[i]); });
  update.finish();
}

}  // namespace ipex::runtime
