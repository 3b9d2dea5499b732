// Steps of optimizers, on plain pointers: each reads and writes a range of one parameter once. Arithmetic is float32 whatever
// the weight is stored in, and the same for every format: a split weight goes through the values that a float32 one does.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// How a weight and its gradient are stored.
//
//   floats      the weight and its gradient are float32
//   split       the weight is a bfloat16, `master` its lower 16 bits (docs/decisions/modules.md), gradient bfloat16
//   bfloat16    the weight is `master`, in float32; `weight` is a rounded copy, gradient bfloat16
//   float16     the same in float16
enum class WeightFormat { floats, split, bfloat16, float16 };

// Elements first .. first + count of a parameter. Pointers are to the parameter's first element.
struct UpdateRange {
  WeightFormat format;
  void* weight;
  void* master;
  const void* gradient;
  float* state[3];
  int64_t first, count;
};

// `gradient_scale` is applied to the gradient first: -1 to maximize, or the inverse of a loss scale.

struct SgdStep {
  float gradient_scale, weight_decay, momentum, one_minus_dampening, learning_rate;
  bool has_momentum, nesterov;
  bool starts_buffer;  // the buffer takes the gradient as it is
  float trust_ratio;   // of Lars, which applies it to gradient and decay; else 1
};

struct AdagradStep {
  float gradient_scale, weight_decay, eps, learning_rate;
};

struct AdamStep {
  float gradient_scale;
  float weight_decay;   // added to the gradient, or 0
  float weight_factor;  // what the weight is multiplied by first, or 1
  float one_minus_beta1, beta2, one_minus_beta2, eps;
  float step_size;                    // learning rate / bias correction of the first moment
  float inverse_root_of_correction2;  // 1 / sqrt(bias correction of the second moment)
  bool amsgrad;
};

struct LambStep {
  float gradient_scale, weight_decay;
  float one_minus_beta1, beta2, one_minus_beta2, eps;
  float inverse_correction1, inverse_root_of_correction2;
  float learning_rate;  // with the trust ratio
};

// Sums of squares.
struct SquaredNorms {
  double weight, update;
};

struct UpdateKernels {
  void (*sgd)(const UpdateRange&, const SgdStep&);
  void (*adagrad)(const UpdateRange&, const AdagradStep&);
  void (*adam)(const UpdateRange&, const AdamStep&);
  // Lamb in two passes, as the step's size depends on norms of the whole parameter: moments, then the weight.
  SquaredNorms (*lamb_moments)(const UpdateRange&, const LambStep&);
  void (*lamb_weight)(const UpdateRange&, const LambStep&);
  // Of the weight and of the gradient.
  SquaredNorms (*lars_norms)(const UpdateRange&, float gradient_scale);
  void (*split)(const float* from, uint16_t* top, uint16_t* bottom, int64_t count);
  void (*join)(const uint16_t* top, const uint16_t* bottom, float* to, int64_t count);
};

}  // namespace ipex::runtime
