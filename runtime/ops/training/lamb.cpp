// Options of a group: learning rate, beta1, beta2, eps, weight decay, gradient scale.
//
//   update = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight decay * weight
//   weight -= learning rate * |weight| / |update| * update        the quotient is 1 where either norm is 0
#include <ATen/record_function.h>

#include "ops/training/bias_correction.h"
#include "ops/training/steps.h"

namespace ipex::runtime {

std::vector<LambStep> lamb_steps(const Update& update, const std::vector<double>& options) {
  std::vector<LambStep> steps(update.size());
  BiasCorrections corrections;
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 6);
    const double learning_rate = of.number(), beta1 = of.number(), beta2 = of.number();
    update[i].expect_states(2, /*has_step=*/true);
    const BiasCorrection& correction = corrections.after(update[i].next_step(), beta1, beta2);
    LambStep& step = steps[i];
    step.learning_rate = static_cast<float>(learning_rate);
    step.one_minus_beta1 = static_cast<float>(1 - beta1);
    step.beta2 = static_cast<float>(beta2);
    step.one_minus_beta2 = static_cast<float>(1 - beta2);
    step.inverse_correction1 = static_cast<float>(1 / correction.first);
    step.inverse_root_of_correction2 = static_cast<float>(1 / correction.root_of_second);
    step.eps = static_cast<float>(of.number());
    step.weight_decay = static_cast<float>(of.number());
    step.gradient_scale = static_cast<float>(of.number());
  }
  return steps;
}

void TrainedParameters::lamb(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::lamb_step", {});
  Update update(*this);
  const std::vector<LambStep> steps = lamb_steps(update, options);
  const UpdateKernels& kernel = kernels().updates;
  update.for_each_piece([&](size_t i, const UpdateRange& range) { return kernel.lamb_moments(range, steps[i]); },
                        [&](size_t i, const UpdateRange& range, const SquaredNorms& sums) {
                          LambStep step = steps[i];
                          const double weight = std::sqrt(sums.weight), change = std::sqrt(sums.update);
                          if (weight != 0 && change != 0)
                            step.learning_rate = static_cast<float>(step.learning_rate * (weight / change));
                          kernel.lamb_weight(range, step);
                        });
  update.finish();
}

}  // namespace ipex::runtime
