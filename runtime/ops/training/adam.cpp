// Adam and AdamW. Options of a group: learning rate, beta1, beta2, eps, weight decay, whether it is decoupled, amsgrad,
// gradient scale. States: both moments and, with amsgrad, the largest second one.
#include <ATen/record_function.h>

#include "ops/training/bias_correction.h"
#include "ops/training/steps.h"

namespace ipex::runtime {

std::vector<AdamStep> adam_steps(const Update& update, const std::vector<double>& options) {
  std::vector<AdamStep> steps(update.size());
  BiasCorrections corrections;
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 8);
    const double learning_rate = of.number(), beta1 = of.number(), beta2 = of.number(), eps = of.number();
    const double weight_decay = of.number();
    const bool is_decoupled = of.flag(), is_amsgrad = of.flag();
    update[i].expect_states(is_amsgrad ? 3 : 2, /*has_step=*/true);
    const BiasCorrection& correction = corrections.after(update[i].next_step(), beta1, beta2);
    AdamStep& step = steps[i];
    step.weight_decay = is_decoupled ? 0 : static_cast<float>(weight_decay);
    step.weight_factor = is_decoupled ? static_cast<float>(1 - learning_rate * weight_decay) : 1;
    step.one_minus_beta1 = static_cast<float>(1 - beta1);
    step.beta2 = static_cast<float>(beta2);
    step.one_minus_beta2 = static_cast<float>(1 - beta2);
    step.eps = static_cast<float>(eps);
    step.step_size = static_cast<float>(learning_rate / correction.first);
    step.inverse_root_of_correction2 = static_cast<float>(1 / correction.root_of_second);
    step.amsgrad = is_amsgrad;
    step.gradient_scale = static_cast<float>(of.number());
  }
  return steps;
}

void TrainedParameters::adam(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::adam_step", {});
  Update update(*this);
  const std::vector<AdamStep> steps = adam_steps(update, options);
  const auto step = kernels().updates.adam;
  update.for_each_piece([&](size_t i, const UpdateRange& range) { step(range, steps[i]); });
  update.finish();
}

}  // namespace ipex::runtime
