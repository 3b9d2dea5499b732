// Options of a group: learning rate, its decay, weight decay, eps, gradient scale.
#include <ATen/record_function.h>

#include "ops/training/trained_parameters.h"

namespace ipex::runtime {

void TrainedParameters::adagrad(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::adagrad_step", {});
  Update update(*this);
  std::vector<AdagradStep> steps(update.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 5);
    const double learning_rate = of.number(), rate_decay = of.number();
    AdagradStep& step = steps[i];
    step.learning_rate = static_cast<float>(learning_rate / (1 + (update[i].next_step() - 1) * rate_decay));
    step.weight_decay = static_cast<float>(of.number());
    step.eps = static_cast<float>(of.number());
    step.gradient_scale = static_cast<float>(of.number());
  }
  const auto step = kernels().updates.adagrad;
  update.for_each_piece([&](size_t i, const UpdateRange& range) { step(range, steps[i]); });
  update.finish();
}

}  // namespace ipex::runtime
