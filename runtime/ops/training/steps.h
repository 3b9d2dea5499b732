// The numbers that kernels update with, one struct per collected parameter, from the options of its group. Each counts its
// parameters' steps. Each .cpp file beside this has one, and says which options.
#pragma once

#include <vector>

#include "ops/training/trained_parameters.h"

namespace ipex::runtime {

struct LarsStep {
  SgdStep sgd;
  double trust_coefficient, eps;
};

std::vector<SgdStep> sgd_steps(const Update& update, const std::vector<double>& options);
std::vector<AdagradStep> adagrad_steps(const Update& update, const std::vector<double>& options);
std::vector<AdamStep> adam_steps(const Update& update, const std::vector<double>& options);
std::vector<LambStep> lamb_steps(const Update& update, const std::vector<double>& options);
std::vector<LarsStep> lars_steps(const Update& update, const std::vector<double>& options);

}  // namespace ipex::runtime
