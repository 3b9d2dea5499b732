// Options of a group: learning rate, its decay, weight decay, eps, gradient scale.
#include <ATen/record_function.h>

#include "ops/training/steps.h"

namespace ipex::runtime {

std::vector<AdagradStep> adagrad_steps(const Update& update, const std::vector<double>& options) {
  std::vector<AdagradStep> steps(update.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 5);
    const double learning_rate = of.number(), rate_decay = of.number();
    update[i].expect_states(1, /*has_step=*/true);
    AdagradStep& step = steps[i];
    step.learning_rate = static_cast<float>(learning_rate / (1 + (update[i].next_step() - 1) * rate_decay));
    step.weight_decay = static_cast<float>(of.number());
    step.eps = static_cast<float>(of.number());
    step.gradient_scale = static_cast<float>(of.number());
  }
  return steps;
}

void TrainedParameters::adagrad(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::adagrad_step", {});
  Update update(*this);
  const std::vector<AdagradStep> steps = adagrad_steps(update, options);
  const auto step = kernels().updates.adagrad;
  update.for_each_piece([&](size_t i, const UpdateRange& range) { step(range, steps[i]); });
  update.finish();
}

}  // namespace ipex::runtime
