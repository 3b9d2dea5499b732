// Linears that follow one another, as one op.
//
//   ipex::linear_chain_prepack(layers) -> LinearChainContext
//   ipex::linear_chain_run(input, context) -> Tensor
//
// It is the same as ipex::linear_run with each layer in turn, bit for bit. Where there are few rows, every layer would run on
// a kernel of our own, and what lies between two of them is small, that is computed at once: the call is checked once, and
// what lies between is no tensor. See docs/decisions/products.md.
#include <ATen/record_function.h>
#include <torch/library.h>

#include "memory/result_memory.h"
#include "ops/product/linear.h"
#include "packed/chain.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

// Elements between two layers, on the stack. Where there are more, arithmetic is what counts.
constexpr int64_t most_between = 2048;

class LinearChainContext final : public Chain<LinearContext> {
 public:
  explicit LinearChainContext(std::vector<Layer> layers) : Chain("ipex::linear_chain_run", std::move(layers)) {}

  at::Tensor run(const at::Tensor& input) const {
    if (at::Tensor result = run_at_once(input); result.defined()) return result;
    at::Tensor y = input;
    for (const Layer& layer : layers()) {
      RECORD_FUNCTION("ipex::linear_run", {});
      y = layer->run(y, {}, /*eager_layout=*/true);
    }
    return y;
  }

 private:
  // Undefined where a layer would go another way.
  at::Tensor run_at_once(const at::Tensor& input) const {
    if (!layers().front()->accepts(input)) return {};
    int64_t width = input.size(-1);
    const int64_t rows = input.numel() / width;
    for (size_t i = 0; i < layers().size(); ++i) {
      if (i > 0 && rows * width > most_between) return {};
      if (layers()[i]->input_width() != width || !layers()[i]->is_for_few_rows(input.dim(), rows)) return {};
      width = layers()[i]->output_width();
    }
    const auto source = input.expect_contiguous();
    at::Tensor result = empty_result(layers().back()->result_sizes(input), at::kFloat);
    float between[2][most_between];
    const auto* from = source->const_data_ptr<float>();
    for (size_t i = 0; i < layers().size(); ++i) {
      float* to = i + 1 == layers().size() ? result.data_ptr<float>() : between[i % 2];
      layers()[i]->multiply({from, rows, layers()[i]->input_width()}, to);
      from = to;
    }
    return result;
  }
};

using Context = c10::intrusive_ptr<LinearChainContext>;

Context linear_chain_prepack(std::vector<LinearChainContext::Layer> layers) {
  return c10::make_intrusive<LinearChainContext>(std::move(layers));
}

at::Tensor linear_chain_run(const at::Tensor& input, const Context& context) { return context->run(input); }

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_chain<LinearChainContext>(m, "LinearChainContext");
  define(m,
         "linear_chain_prepack(__torch__.torch.classes.ipex.LinearContext[] layers) -> "
         "__torch__.torch.classes.ipex.LinearChainContext",
         linear_chain_prepack);
  define(m, "linear_chain_run(Tensor input, __torch__.torch.classes.ipex.LinearChainContext context) -> Tensor",
         linear_chain_run);
}

}  // namespace
}  // namespace ipex::runtime
