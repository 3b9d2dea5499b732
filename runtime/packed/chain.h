// A context of layers that follow one another and may run as one op. It is saved, described and asked for reasons layer by
// layer.
#pragma once

#include <torch/custom_class.h>
#include <torch/library.h>

#include <set>
#include <string>
#include <vector>

#include "packed/packed_op.h"

namespace ipex::runtime {

template <typename LayerContext>
class Chain : public torch::CustomClassHolder {
 public:
  using Layer = c10::intrusive_ptr<LayerContext>;

  // `name` is the run op, for messages.
  Chain(const char* name, std::vector<Layer> layers) : name_(name), layers_(std::move(layers)) {
    TORCH_CHECK(!layers_.empty(), name_, ": expected at least one layer, got none.");
  }

  const std::vector<Layer>& layers() const { return layers_; }

  std::vector<State> state() const {
    std::vector<State> states;
    for (const Layer& layer : layers_) states.push_back(layer->state());
    return states;
  }

  static std::vector<Layer> load_layers(const std::vector<State>& states) {
    std::vector<Layer> layers;
    for (const State& state : states) layers.push_back(LayerContext::load(state));
    return layers;
  }

  std::string describe() const {
    std::string text;
    for (const Layer& layer : layers_) text += (text.empty() ? "" : ", ") + layer->facts().in_words();
    return c10::str(name_, "(", text, ")");
  }

  // Of all layers, each once.
  std::vector<std::string> fallback_reasons() const {
    std::set<std::string> reasons;
    for (const Layer& layer : layers_) {
      for (std::string& reason : layer->fallback_reasons()) reasons.insert(std::move(reason));
    }
    return {reasons.begin(), reasons.end()};
  }

 private:
  const char* name_;
  const std::vector<Layer> layers_;
};

// Makes a chain known to TorchScript.
template <typename Context>
void define_chain(torch::Library& library, const char* name) {
  using Pointer = c10::intrusive_ptr<Context>;
  library.class_<Context>(name)
      .def("layers", [](const Pointer& context) { return context->layers(); })
      .def("fallback_reasons", [](const Pointer& context) { return context->fallback_reasons(); })
      .def("describe", [](const Pointer& context) { return context->describe(); })
      .def("__repr__", [](const Pointer& context) { return context->describe(); })
      .def_pickle(
          [](const Pointer& context) { return context->state(); },
          [](const std::vector<State>& states) { return c10::make_intrusive<Context>(Context::load_layers(states)); });
}

}  // namespace ipex::runtime
