// Options of a group: learning rate, momentum, dampening, weight decay, nesterov, trust coefficient, eps, gradient scale.
//
//   trust = coefficient * |weight| / (|gradient| + weight decay * |weight| + eps)     1 where either norm is 0
//   then sgd, with trust * (gradient + weight decay * weight) for its gradient
#include <ATen/record_function.h>

#include <cmath>

#include "ops/training/trained_parameters.h"

namespace ipex::runtime {
namespace {

struct LarsStep {
  SgdStep sgd;
  double trust_coefficient, eps;
};

}  // namespace

void TrainedParameters::lars(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::lars_step", {});
  Update update(*this);
  std::vector<LarsStep> steps(update.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 8);
    SgdStep& step = steps[i].sgd;
    step.learning_rate = static_cast<float>(of.number());
    const double momentum = of.number();
    step.momentum = static_cast<float>(momentum);
    step.has_momentum = momentum != 0;
    step.one_minus_dampening = static_cast<float>(1 - of.number());
    step.weight_decay = static_cast<float>(of.number());
    step.nesterov = of.flag();
    steps[i].trust_coefficient = of.number();
    steps[i].eps = of.number();
    step.gradient_scale = static_cast<float>(of.number());
    step.starts_buffer = update[i].starts;
  }
  const UpdateKernels& kernel = kernels().updates;
  update.for_each_piece(
      [&](size_t i, const UpdateRange& range) { return kernel.lars_norms(range, steps[i].sgd.gradient_scale); },
      [&](size_t i, const UpdateRange& range, const SquaredNorms& sums) {
        const LarsStep& of = steps[i];
        const double weight = std::sqrt(sums.weight), gradient = std::sqrt(sums.update);
        SgdStep step = of.sgd;
        step.trust_ratio = 1;
        if (weight != 0 && gradient != 0) {
          step.trust_ratio =
              static_cast<float>(of.trust_coefficient * weight / (gradient + step.weight_decay * weight + of.eps));
        }
        kernel.sgd(range, step);
      });
  update.finish();
}

}  // namespace ipex::runtime
