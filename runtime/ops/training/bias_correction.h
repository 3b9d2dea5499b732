// What moments that start at zero lack after some steps.
#pragma once

#include <cmath>

namespace ipex::runtime {

struct BiasCorrection {
  double first, root_of_second;

  static BiasCorrection after(double step, double beta1, double beta2) {
    return {1 - std::pow(beta1, step), std::sqrt(1 - std::pow(beta2, step))};
  }
};

// Most parameters have been updated as often as their neighbour.
class BiasCorrections {
 public:
  const BiasCorrection& after(double step, double beta1, double beta2) {
    if (step != step_ || beta1 != beta1_ || beta2 != beta2_) {
      last_ = BiasCorrection::after(step, beta1, beta2);
      step_ = step, beta1_ = beta1, beta2_ = beta2;
    }
    return last_;
  }

 private:
  double step_ = 0, beta1_ = 0, beta2_ = 0;
  BiasCorrection last_{};
};

}  // namespace ipex::runtime
