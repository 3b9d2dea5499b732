// Options of a group: those of sgd_step.h, trust coefficient, eps, gradient scale.
//
//   trust = coefficient * |weight| / (|gradient| + weight decay * |weight| + eps)     1 where either norm is 0
//   then sgd, with trust * (gradient + weight decay * weight) for its gradient
#include <ATen/record_function.h>

#include <cmath>

#include "ops/training/sgd_step.h"
#include "ops/training/steps.h"

namespace ipex::runtime {
std::vector<LarsStep> lars_steps(const Update& update, const std::vector<double>& options) {
  std::vector<LarsStep> steps(update.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 8);
    steps[i].sgd = read_sgd_step(of, update[i].starts);
    update[i].expect_states(steps[i].sgd.has_momentum ? 1 : 0, /*has_step=*/false);
    steps[i].trust_coefficient = of.number();
    steps[i].eps = of.number();
    steps[i].sgd.gradient_scale = static_cast<float>(of.number());
  }
  return steps;
}

void TrainedParameters::lars(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::lars_step", {});
  Update update(*this);
  const std::vector<LarsStep> steps = lars_steps(update, options);
  const UpdateKernels& kernel = kernels().updates;
  update.for_each_piece(
      [&](size_t i, const UpdateRange& range) { return kernel.lars_norms(range, steps[i].sgd.gradient_scale); },
      [&](size_t i, const UpdateRange& range, const SquaredNorms& sums) {
        const LarsStep& of = steps[i];
        const double weight = std::sqrt(sums.weight), gradient = std::sqrt(sums.update);
        SgdStep step = of.sgd;
        if (weight != 0 && gradient != 0) {
          step.trust_ratio =
              static_cast<float>(of.trust_coefficient * weight / (gradient + step.weight_decay * weight + of.eps));
        }
        kernel.sgd(range, step);
      });
  update.finish();
}

}  // namespace ipex::runtime
