// A step for kernels on another device, as two tables that Python hands over to them (python/ipex/optim/triton_kernels.py):
//
//   parameters   int64 [n, 10]    a row per parameter: addresses of weight, master, gradient and three states (0 for what it
//                                 lacks), number of elements, its row in the other table, WeightFormat, and whether all
//                                 addresses are divisible by 16
//   numbers      float64 [m, k]   what the update is computed with. Parameters in sequence share a row where it is the same
//
// The numbers are those of the CPU's kernels, from the same code, so results can be the same bits.
#include <array>

#include "ops/training/steps.h"

namespace ipex::runtime {
namespace {

constexpr int64_t columns = 10;

// In the order in which the kernels read them.
std::array<double, 8> numbers_of(const SgdStep& s) {
  return {s.gradient_scale,
          s.weight_decay,
          s.momentum,
          s.one_minus_dampening,
          s.learning_rate,
          s.has_momentum ? 1.0 : 0.0,
          s.nesterov ? 1.0 : 0.0,
          s.starts_buffer ? 1.0 : 0.0};
}

std::array<double, 4> numbers_of(const AdagradStep& s) {
  return {s.gradient_scale, s.weight_decay, s.eps, s.learning_rate};
}

std::array<double, 10> numbers_of(const AdamStep& s) {
  return {s.gradient_scale,
          s.weight_decay,
          s.weight_factor,
          s.one_minus_beta1,
          s.beta2,
          s.one_minus_beta2,
          s.eps,
          s.step_size,
          s.inverse_root_of_correction2,
          s.amsgrad ? 1.0 : 0.0};
}

std::array<double, 9> numbers_of(const LambStep& s) {
  return {s.gradient_scale,  s.weight_decay, s.one_minus_beta1,     s.beta2,
          s.one_minus_beta2, s.eps,          s.inverse_correction1, s.inverse_root_of_correction2,
          s.learning_rate};
}

std::array<double, 10> numbers_of(const LarsStep& s) {
  std::array<double, 10> numbers{};
  const auto of_sgd = numbers_of(s.sgd);
  std::copy(of_sgd.begin(), of_sgd.end(), numbers.begin());
  numbers[8] = s.trust_coefficient;
  numbers[9] = s.eps;
  return numbers;
}

template <typename Step>
std::tuple<at::Tensor, at::Tensor> tables(const Update& update, const std::vector<Step>& steps) {
  constexpr size_t width = std::tuple_size_v<decltype(numbers_of(steps[0]))>;
  const auto count = static_cast<int64_t>(steps.size());
  at::Tensor parameters = at::empty({count, columns}, at::kLong);
  auto* row = parameters.mutable_data_ptr<int64_t>();
  std::vector<std::array<double, width>> numbers;
  for (size_t i = 0; i < steps.size(); ++i, row += columns) {
    const auto own = numbers_of(steps[i]);
    if (numbers.empty() || numbers.back() != own) numbers.push_back(own);
    const UpdateRange& range = update.range(i);
    const std::array<const void*, 6> addresses{range.weight,   range.master,   range.gradient,
                                               range.state[0], range.state[1], range.state[2]};
    bool is_aligned = true;
    for (size_t a = 0; a < addresses.size(); ++a) {
      row[a] = static_cast<int64_t>(reinterpret_cast<intptr_t>(addresses[a]));
      is_aligned = is_aligned && row[a] % 16 == 0;
    }
    row[6] = range.count;
    row[7] = static_cast<int64_t>(numbers.size()) - 1;
    row[8] = static_cast<int64_t>(range.format);
    row[9] = is_aligned ? 1 : 0;
  }
  at::Tensor table = at::empty({static_cast<int64_t>(numbers.size()), static_cast<int64_t>(width)}, at::kDouble);
  std::copy_n(numbers.empty() ? nullptr : numbers[0].data(), numbers.size() * width, table.mutable_data_ptr<double>());
  return {parameters, table};
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> TrainedParameters::begin_on_device(const std::string& kernel,
                                                                      const std::vector<double>& options) {
  on_device_ = std::make_unique<Update>(*this);
  const Update& update = *on_device_;
  if (kernel == "sgd") return tables(update, sgd_steps(update, options));
  if (kernel == "adagrad") return tables(update, adagrad_steps(update, options));
  if (kernel == "adam") return tables(update, adam_steps(update, options));
  if (kernel == "lamb") return tables(update, lamb_steps(update, options));
  TORCH_CHECK_VALUE(kernel == "lars",
                    "ipex.TrainedParameters.begin_on_device: expected sgd, adagrad, adam, lamb or lars, got ", kernel,
                    ".");
  return tables(update, lars_steps(update, options));
}

void TrainedParameters::finish_on_device() {
  TORCH_CHECK(on_device_ != nullptr,
              "ipex.TrainedParameters.finish_on_device: expected a step that began, got none. Call begin_on_device.");
  on_device_->finish();
  on_device_.reset();
}

}  // namespace ipex::runtime
