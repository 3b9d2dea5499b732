// What calibration data looks like at one place of a model.
//
//   ipex::observer_prepack(key, weight_magnitudes) -> Observer
//   ipex::observe(x, observer) -> Tensor     x itself
//
// An observer keeps the range of all values, a moving average of the ranges of calls, and a histogram. Where it is told
// the largest magnitude in each column of the weights that read x, it keeps those of x too, for SmoothQuant. Scales are
// computed from these in Python (ipex.quantization). Values that are not finite are counted, and otherwise left out.
#include <ATen/ATen.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <mutex>

#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/expect_tensor.h"

namespace ipex::runtime {
namespace {

class Observer final : public torch::CustomClassHolder {
 public:
  using Statistics = c10::Dict<std::string, at::Tensor>;

  Observer(std::string key, at::Tensor weight_magnitudes)
      : key_(std::move(key)), weight_magnitudes_(std::move(weight_magnitudes)) {}

  void see(const at::Tensor& x) {
    if (x.scalar_type() != at::kFloat || x.numel() == 0) return;
    const at::Tensor values = x.detach().contiguous();
    const std::lock_guard lock(mutex_);
    ++calls_;
    see_range(values);
    for (const float v : numbers(values)) {
      if (std::isfinite(v)) ++histogram_[bin_of(v)];
    }
    if (weight_magnitudes_.defined() && values.dim() > 0) see_channels(values);
  }

  Statistics statistics() const {
    const std::lock_guard lock(mutex_);
    Statistics all;
    all.insert("range", at::tensor({low_, high_, average_low_, average_high_}, at::kDouble));
    all.insert("counts", at::tensor({calls_, not_finite_}, at::kLong));
    all.insert("limit", at::tensor({limit_}, at::kDouble));
    all.insert("histogram", at::tensor(histogram_, at::kLong));
    if (magnitudes_.defined()) all.insert("magnitudes", magnitudes_);
    if (weight_magnitudes_.defined()) all.insert("weight_magnitudes", weight_magnitudes_);
    return all;
  }

  const std::string& key() const { return key_; }

  std::string describe() const {
    const std::lock_guard lock(mutex_);
    const std::string range = low_ > high_ ? "nothing" : c10::str(low_, "..", high_);
    return c10::str("ipex::observe(key=", key_, ", calls=", calls_, ", range=", range, ", not_finite=", not_finite_,
                    ")");
  }

  using State = std::tuple<std::string, Statistics>;
  State state() const { return {key_, statistics()}; }

  static c10::intrusive_ptr<Observer> load(const State& state) {
    const auto& [key, all] = state;
    const auto read = [&](const char* name, at::ScalarType dtype, int64_t count) {
      const at::Tensor tensor = all.contains(name) ? all.at(name) : at::Tensor();
      expect_tensor("ipex::observe", name, tensor, count, dtype);
      return tensor.contiguous();
    };
    const at::Tensor range = read("range", at::kDouble, 4), counts = read("counts", at::kLong, 2),
                     limit = read("limit", at::kDouble, 1), histogram = read("histogram", at::kLong, bins), nothing;
    const auto read_if_there = [&](const char* name) {
      return all.contains(name) ? read(name, at::kFloat, any_size) : nothing;
    };
    auto observer = c10::make_intrusive<Observer>(key, read_if_there("weight_magnitudes"));
    observer->magnitudes_ = read_if_there("magnitudes");
    observer->low_ = range[0].item<double>();
    observer->high_ = range[1].item<double>();
    observer->average_low_ = range[2].item<double>();
    observer->average_high_ = range[3].item<double>();
    observer->calls_ = counts[0].item<int64_t>();
    observer->not_finite_ = counts[1].item<int64_t>();
    observer->limit_ = limit.item<double>();
    TORCH_CHECK(observer->limit_ > 0, "ipex::observe: expected a positive limit", damaged);
    const auto* first = histogram.const_data_ptr<int64_t>();
    observer->histogram_.assign(first, first + bins);
    return observer;
  }

 private:
  static constexpr int64_t bins = 4096;

  static at::ArrayRef<float> numbers(const at::Tensor& x) {
    return {x.const_data_ptr<float>(), static_cast<size_t>(x.numel())};
  }

  void see_range(const at::Tensor& values) {
    double low = std::numeric_limits<double>::infinity(), high = -low;
    for (const float v : numbers(values)) {
      if (!std::isfinite(v)) {
        ++not_finite_;
        continue;
      }
      low = std::min<double>(low, v);
      high = std::max<double>(high, v);
    }
    if (low > high) return;  // there was no finite one
    constexpr double newest = 0.1;
    const bool is_first = low_ > high_;
    average_low_ = is_first ? low : average_low_ + newest * (low - average_low_);
    average_high_ = is_first ? high : average_high_ + newest * (high - average_high_);
    low_ = std::min(low_, low);
    high_ = std::max(high_, high);
    while (std::max(std::abs(low), std::abs(high)) > limit_) widen();
  }

  // The bins cover -limit to limit. Twice as far, two of them make one.
  void widen() {
    std::vector<int64_t> wider(bins, 0);
    for (int64_t i = 0; i < bins; ++i) wider[bins / 4 + i / 2] += histogram_[i];
    histogram_ = std::move(wider);
    limit_ *= 2;
  }

  int64_t bin_of(float v) const {
    const auto bin = static_cast<int64_t>((v / limit_ + 1) * (bins / 2));
    return std::min(bin, bins - 1);
  }

  void see_channels(const at::Tensor& values) {
    const at::Tensor rows = values.reshape({-1, values.size(-1)}).abs();
    const at::Tensor most = std::get<0>(at::where(rows.isfinite(), rows, 0).max(0));
    const bool is_new = !magnitudes_.defined() || magnitudes_.sizes() != most.sizes();
    magnitudes_ = is_new ? most : at::maximum(magnitudes_, most);
  }

  const std::string key_;
  const at::Tensor weight_magnitudes_;
  mutable std::mutex mutex_;
  int64_t calls_ = 0, not_finite_ = 0;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
  double average_low_ = 0, average_high_ = 0;
  double limit_ = 1.0 / (1 << 20);
  std::vector<int64_t> histogram_ = std::vector<int64_t>(bins, 0);
  at::Tensor magnitudes_;
};

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  using Pointer = c10::intrusive_ptr<Observer>;
  m.class_<Observer>("Observer")
      .def("key", [](const Pointer& observer) { return observer->key(); })
      .def("statistics", [](const Pointer& observer) { return observer->statistics(); })
      .def("describe", [](const Pointer& observer) { return observer->describe(); })
      .def("__repr__", [](const Pointer& observer) { return observer->describe(); })
      .def_pickle([](const Pointer& observer) { return observer->state(); },
                  [](const Observer::State& state) { return Observer::load(state); });
  define(m, "observer_prepack(str key, Tensor? weight_magnitudes) -> __torch__.torch.classes.ipex.Observer",
         [](std::string key, const std::optional<at::Tensor>& weight_magnitudes) {
           return c10::make_intrusive<Observer>(std::move(key), weight_magnitudes.value_or(at::Tensor()));
         });
  define(m, "observe(Tensor(a) x, __torch__.torch.classes.ipex.Observer observer) -> Tensor(a)",
         [](const at::Tensor& x, const Pointer& observer) {
           observer->see(x);
           return x;
         });
}

}  // namespace
}  // namespace ipex::runtime
