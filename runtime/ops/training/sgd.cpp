// Options of a group: those of sgd_step.h, gradient scale.
#include <ATen/record_function.h>

#include "ops/training/sgd_step.h"
#include "ops/training/steps.h"

namespace ipex::runtime {

std::vector<SgdStep> sgd_steps(const Update& update, const std::vector<double>& options) {
  std::vector<SgdStep> steps(update.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    Options of(options, update[i].group, 6);
    steps[i] = read_sgd_step(of, update[i].starts);
    update[i].expect_states(steps[i].has_momentum ? 1 : 0, /*has_step=*/false);
    steps[i].gradient_scale = static_cast<float>(of.number());
  }
  return steps;
}

void TrainedParameters::sgd(const std::vector<double>& options) {
  RECORD_FUNCTION("ipex::sgd_step", {});
  Update update(*this);
  const std::vector<SgdStep> steps = sgd_steps(update, options);
  const auto step = kernels().updates.sgd;
  update.for_each_piece([&](size_t i, const UpdateRange& range) { step(range, steps[i]); });
  update.finish();
}

}  // namespace ipex::runtime
