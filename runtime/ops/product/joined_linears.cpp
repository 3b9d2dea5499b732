// Linears of one input, as one op: query, key and value of an attention.
//
//   ipex::joined_linears_prepack(layers) -> JoinedLinearsContext
//   ipex::joined_linears_run(input, context) -> Tensor[]    the result of each layer, in order
//
// and the same, `.codes`, for layers of codes (weight_only_linear.cpp), where `operands` may say of each which one before it
// gives its operand: -1 for one that has none.
//
// It is the same as the run op of each layer, bit for bit. Where every layer runs on a kernel of our own, all are one parallel
// region, so that threads meet once instead of once for each, and share what there is more evenly. See
// docs/decisions/products.md.
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "ops/product/linear.h"
#include "ops/product/product.h"
#include "ops/product/weight_only_linear.h"
#include "packed/chain.h"
#include "packed/damaged.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

// None where a layer would go another way.
std::vector<at::Tensor> run_at_once(at::ArrayRef<c10::intrusive_ptr<LinearContext>> layers, const at::Tensor& input,
                                    at::IntArrayRef /*operands*/) {
  const auto runs_alone = [&](const auto& layer) {
    return layer->accepts(input) && layer->multiplies_alone(input.dim());
  };
  if (!std::all_of(layers.begin(), layers.end(), runs_alone)) return {};
  const std::optional<InputRows> strided = rows_of(input);
  const at::Tensor dense = strided ? at::Tensor() : contiguous_result(input);
  const InputRows rows = strided ? *strided : *rows_of(dense);
  std::vector<at::Tensor> results;
  std::vector<RowsProduct> products;
  for (const auto& layer : layers) {
    results.push_back(empty_result(layer->result_sizes(input), at::kFloat));
    products.push_back(layer->product(rows, results.back().data_ptr<float>()));
  }
  multiply_side_by_side(products);
  return results;
}

std::vector<at::Tensor> run_at_once(WeightOnlyLinearContext::Layers layers, const at::Tensor& input,
                                    at::IntArrayRef operands) {
  return WeightOnlyLinearContext::run_at_once(layers, input, operands);
}

template <typename LayerContext>
class Joined final : public Chain<LayerContext> {
 public:
  using Layer = typename Chain<LayerContext>::Layer;
  using Pointer = c10::intrusive_ptr<Joined>;

  explicit Joined(std::vector<Layer> layers) : Chain<LayerContext>("ipex::joined_linears_run", std::move(layers)) {
    const int64_t width = this->layers().front()->input_width();
    for (const Layer& layer : this->layers()) {
      TORCH_CHECK(layer->input_width() == width,
                  "ipex::joined_linears_prepack: expected layers of one input width, got ", width, " and ",
                  layer->input_width(), ". Only linears that read the same input can be joined.");
    }
  }

  std::vector<at::Tensor> run(const at::Tensor& input, at::IntArrayRef given = {}) const {
    const size_t count = this->layers().size();
    at::DimVector operands(given.begin(), given.end());
    operands.resize(operands.empty() ? count : operands.size(), -1);
    for (size_t i = 0; i < operands.size(); ++i) {
      TORCH_CHECK(operands.size() == count && operands[i] >= -1 && operands[i] < static_cast<int64_t>(i),
                  "ipex::joined_linears_run: expected of each of ", count, " layers one before it, or -1, got ", given,
                  damaged);
    }
    std::vector<at::Tensor> results = run_at_once(this->layers(), input, operands);
    for (size_t i = results.size(); i < count; ++i) {
      const Layer& layer = this->layers()[i];
      RECORD_FUNCTION(layer->name(), {});
      std::vector<at::Tensor> own;
      if (operands[i] >= 0) own.push_back(results[static_cast<size_t>(operands[i])]);
      results.push_back(layer->run(input, own, /*eager_layout=*/true));
    }
    return results;
  }
};

template <typename LayerContext, typename Run>
void define_joined(torch::Library& library, const std::string& overload, const std::string& layer,
                   const std::string& joined, const std::string& more, Run&& run) {
  using Context = Joined<LayerContext>;
  const std::string classes = "__torch__.torch.classes.ipex.";
  define_chain<Context>(library, joined.c_str());
  define(library, "joined_linears_prepack" + overload + "(" + classes + layer + "[] layers) -> " + classes + joined,
         [](std::vector<typename Context::Layer> layers) { return c10::make_intrusive<Context>(std::move(layers)); });
  define(library,
         "joined_linears_run" + overload + "(Tensor input, " + classes + joined + " context" + more + ") -> Tensor[]",
         std::forward<Run>(run));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_joined<LinearContext>(
      m, "", "LinearContext", "JoinedLinearsContext", "",
      [](const at::Tensor& input, const Joined<LinearContext>::Pointer& context) { return context->run(input); });
  define_joined<WeightOnlyLinearContext>(
      m, ".codes", "WeightOnlyLinearContext", "JoinedCodesContext", ", int[] operands=[]",
      [](const at::Tensor& input, const Joined<WeightOnlyLinearContext>::Pointer& context, at::IntArrayRef operands) {
        return context->run(input, operands);
      });
}

}  // namespace
}  // namespace ipex::runtime
