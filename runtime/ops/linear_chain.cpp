// Linears that follow one another, as one op.
//
//   ipex::linear_chain_prepack(layers) -> LinearChainContext
//   ipex::linear_chain_run(input, context) -> Tensor
//
// It is the same as ipex::linear_run with each layer in turn, bit for bit. Where there are few rows, every layer would run on
// a kernel of our own, and what lies between two of them is small, that is computed at once: the call is checked once, and
// what lies between is no tensor. See docs/decisions/0014-small-linears-in-one-call.md.
#include <ATen/EmptyTensor.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <set>

#include "ops/linear.h"

namespace ipex::runtime {
namespace {

using Layer = c10::intrusive_ptr<LinearContext>;

// Elements between two layers, on the stack. Where there are more, arithmetic is what counts.
constexpr int64_t most_between = 2048;

class LinearChainContext final : public torch::CustomClassHolder {
 public:
  explicit LinearChainContext(std::vector<Layer> layers) : layers_(std::move(layers)) {
    TORCH_CHECK(!layers_.empty(), "ipex::linear_chain_run: expected at least one layer, got none.");
  }

  // Of each layer.
  std::vector<State> state() const {
    std::vector<State> states;
    for (const Layer& layer : layers_) states.push_back(layer->state());
    return states;
  }

  static c10::intrusive_ptr<LinearChainContext> load(const std::vector<State>& states) {
    std::vector<Layer> layers;
    for (const State& state : states) layers.push_back(LinearContext::load(state));
    return c10::make_intrusive<LinearChainContext>(std::move(layers));
  }

  const std::vector<Layer>& layers() const { return layers_; }

  std::string describe() const {
    std::string text;
    for (const Layer& layer : layers_) text += (text.empty() ? "" : ", ") + layer->describe();
    return "ipex::linear_chain_run(" + text + ")";
  }

  // Of all layers, each once.
  std::vector<std::string> fallback_reasons() const {
    std::set<std::string> reasons;
    for (const Layer& layer : layers_) {
      for (std::string& reason : layer->fallback_reasons()) reasons.insert(std::move(reason));
    }
    return {reasons.begin(), reasons.end()};
  }

  at::Tensor run(const at::Tensor& input) const {
    if (at::Tensor result = run_at_once(input); result.defined()) return result;
    at::Tensor y = input;
    for (const Layer& layer : layers_) {
      RECORD_FUNCTION("ipex::linear_run", {});
      y = layer->run(y, {}, /*eager_layout=*/true);
    }
    return y;
  }

 private:
  // Undefined where a layer would go another way.
  at::Tensor run_at_once(const at::Tensor& input) const {
    if (!layers_.front()->accepts(input)) return {};
    int64_t width = input.size(-1);
    const int64_t rows = input.numel() / width;
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0 && rows * width > most_between) return {};
      if (layers_[i]->input_width() != width || !layers_[i]->is_for_few_rows(input.dim(), rows)) return {};
      width = layers_[i]->output_width();
    }
    const auto source = input.expect_contiguous();
    at::DimVector sizes(input.sizes());
    sizes.back() = width;
    at::Tensor result = at::detail::empty_cpu(sizes, at::kFloat);
    float between[2][most_between];
    const auto* from = source->const_data_ptr<float>();
    for (size_t i = 0; i < layers_.size(); ++i) {
      float* to = i + 1 == layers_.size() ? result.data_ptr<float>() : between[i % 2];
      layers_[i]->multiply_few_rows(from, rows, to);
      from = to;
    }
    return result;
  }

  const std::vector<Layer> layers_;
};

using Context = c10::intrusive_ptr<LinearChainContext>;

Context linear_chain_prepack(std::vector<Layer> layers) {
  return c10::make_intrusive<LinearChainContext>(std::move(layers));
}

at::Tensor linear_chain_run(const at::Tensor& input, const Context& context) { return context->run(input); }

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.class_<LinearChainContext>("LinearChainContext")
      .def("layers", [](const Context& context) { return context->layers(); })
      .def("fallback_reasons", [](const Context& context) { return context->fallback_reasons(); })
      .def("describe", [](const Context& context) { return context->describe(); })
      .def("__repr__", [](const Context& context) { return context->describe(); })
      .def_pickle([](const Context& context) { return context->state(); },
                  [](const std::vector<State>& states) { return LinearChainContext::load(states); });
  m.def(
      "linear_chain_prepack(__torch__.torch.classes.ipex.LinearContext[] layers) -> "
      "__torch__.torch.classes.ipex.LinearChainContext",
      linear_chain_prepack);
  m.def("linear_chain_run(Tensor input, __torch__.torch.classes.ipex.LinearChainContext context) -> Tensor",
        linear_chain_run);
}

}  // namespace
}  // namespace ipex::runtime
