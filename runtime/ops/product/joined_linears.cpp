// Linears of one input, as one op: query, key and value of an attention.
//
//   ipex::joined_linears_prepack(layers) -> JoinedLinearsContext
//   ipex::joined_linears_run(input, context) -> Tensor[]    the result of each layer, in order
//
// It is the same as ipex::linear_run with each layer, bit for bit. Where every layer runs on a kernel of our own, all are one
// parallel region, so that threads meet once instead of once for each, and share what there is more evenly. See
// docs/decisions/products.md.
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "ops/product/linear.h"
#include "ops/product/product.h"
#include "packed/chain.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

class JoinedLinearsContext final : public Chain<LinearContext> {
 public:
  explicit JoinedLinearsContext(std::vector<Layer> layers) : Chain("ipex::joined_linears_run", std::move(layers)) {
    for (const Layer& layer : this->layers()) {
      TORCH_CHECK(layer->input_width() == input_width(),
                  "ipex::joined_linears_prepack: expected layers of one input width, got ", input_width(), " and ",
                  layer->input_width(), ". Only linears that read the same input can be joined.");
    }
  }

  std::vector<at::Tensor> run(const at::Tensor& input) const {
    std::vector<at::Tensor> results;
    const auto runs_alone = [&](const Layer& layer) {
      return layer->accepts(input) && layer->multiplies_alone(input.dim());
    };
    if (!std::all_of(layers().begin(), layers().end(), runs_alone)) {
      for (const Layer& layer : layers()) {
        RECORD_FUNCTION("ipex::linear_run", {});
        results.push_back(layer->run(input, {}, /*eager_layout=*/true));
      }
      return results;
    }
    const std::optional<InputRows> strided = rows_of(input);
    const at::Tensor dense = strided ? at::Tensor() : contiguous_result(input);
    const InputRows rows = strided ? *strided : *rows_of(dense);
    std::vector<RowsProduct> products;
    for (const Layer& layer : layers()) {
      results.push_back(empty_result(layer->result_sizes(input), at::kFloat));
      products.push_back(layer->product(rows, results.back().data_ptr<float>()));
    }
    multiply_side_by_side(products);
    return results;
  }

 private:
  int64_t input_width() const { return layers().front()->input_width(); }
};

using JoinedContext = c10::intrusive_ptr<JoinedLinearsContext>;

JoinedContext joined_linears_prepack(std::vector<JoinedLinearsContext::Layer> layers) {
  return c10::make_intrusive<JoinedLinearsContext>(std::move(layers));
}

std::vector<at::Tensor> joined_linears_run(const at::Tensor& input, const JoinedContext& context) {
  return context->run(input);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_chain<JoinedLinearsContext>(m, "JoinedLinearsContext");
  define(m,
         "joined_linears_prepack(__torch__.torch.classes.ipex.LinearContext[] layers) -> "
         "__torch__.torch.classes.ipex.JoinedLinearsContext",
         joined_linears_prepack);
  define(m, "joined_linears_run(Tensor input, __torch__.torch.classes.ipex.JoinedLinearsContext context) -> Tensor[]",
         joined_linears_run);
}

}  // namespace
}  // namespace ipex::runtime
