// Rows in groups, each times a matrix of its own: the experts of a mixture.
//
//   ipex::grouped_linear_prepack(layers) -> GroupedLinearContext
//   ipex::grouped_linear_run(input, offsets, context) -> Tensor
//
// Rows offsets[i - 1] to offsets[i] of the input go through layer i, a linear without bias. It is aten::_grouped_mm with
// packed weights, and each group is multiplied as ipex::linear_run would. Rows behind the last offset are zeros; aten leaves
// whatever was in memory there. Where the call is no ordinary one, aten computes it from the plain weights.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "ops/product/linear.h"
#include "packed/call_conditions.h"
#include "packed/chain.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

class GroupedLinearContext final : public Chain<LinearContext> {
 public:
  explicit GroupedLinearContext(std::vector<Layer> layers) : Chain("ipex::grouped_linear_run", std::move(layers)) {
    for (const Layer& layer : this->layers()) {
      TORCH_CHECK(layer->input_width() == depth() && layer->output_width() == columns(),
                  "ipex::grouped_linear_prepack: expected layers of one shape, got [", columns(), ", ", depth(),
                  "] and [", layer->output_width(), ", ", layer->input_width(),
                  "]. Give each group a layer of that shape.");
    }
  }

  at::Tensor run(const at::Tensor& input, const at::Tensor& offsets) const {
    if (const char* reason = reason_for_aten(input, offsets)) {
      const LeftToAten left(reason, "ipex::grouped_linear_run");
      return at::_grouped_mm(input, plain_weights(), offsets);
    }
    at::Tensor result = empty_result({input.size(0), columns()}, input.options());
    const auto* ends = offsets.const_data_ptr<int32_t>();
    int64_t first = 0;
    for (size_t i = 0; i < layers().size(); ++i) {
      const int64_t last = ends[i];
      if (last > first)
        multiply(*layers()[i], input.narrow(0, first, last - first), result.narrow(0, first, last - first));
      first = last;
    }
    if (first < input.size(0)) result.narrow(0, first, input.size(0) - first).zero_();
    return result;
  }

 private:
  int64_t depth() const { return layers().front()->input_width(); }
  int64_t columns() const { return layers().front()->output_width(); }

  const char* reason_for_aten(const at::Tensor& input, const at::Tensor& offsets) const {
    if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
    if (!is_plain_cpu_float(input)) return "its input is not a float32 CPU tensor";
    if (wants_gradient(input)) return "its input requires a gradient";
    if (input.dim() != 2 || input.size(1) != depth()) return "its input has not two dimensions, or another width";
    if (!is_plain_cpu(offsets) || offsets.scalar_type() != at::kInt || !offsets.is_contiguous() || offsets.dim() != 1 ||
        offsets.size(0) != std::ssize(layers())) {
      return "its offsets are not an int32 for each group";
    }
    const auto* ends = offsets.const_data_ptr<int32_t>();
    if (ends[0] < 0 || !std::is_sorted(ends, ends + offsets.size(0)) || ends[offsets.size(0) - 1] > input.size(0)) {
      return "its offsets do not rise, or lead out of its input";
    }
    return nullptr;
  }

  static void multiply(const LinearContext& layer, const at::Tensor& rows, const at::Tensor& result) {
    const auto strided = layer.multiplies_alone(/*rank=*/2) ? rows_of(rows) : std::nullopt;
    if (strided) return layer.multiply(*strided, result.mutable_data_ptr<float>());
    RECORD_FUNCTION("ipex::linear_run", {});
    result.copy_(layer.run(rows, {}, /*eager_layout=*/true));
  }

  // As aten has them: [groups, depth, columns].
  at::Tensor plain_weights() const {
    std::vector<at::Tensor> weights;
    for (const Layer& layer : layers()) weights.push_back(layer->plain());
    return at::stack(weights).transpose(1, 2);
  }
};

using GroupsContext = c10::intrusive_ptr<GroupedLinearContext>;

GroupsContext grouped_linear_prepack(std::vector<GroupedLinearContext::Layer> layers) {
  return c10::make_intrusive<GroupedLinearContext>(std::move(layers));
}

at::Tensor grouped_linear_run(const at::Tensor& input, const at::Tensor& offsets, const GroupsContext& context) {
  return context->run(input, offsets);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_chain<GroupedLinearContext>(m, "GroupedLinearContext");
  define(m,
         "grouped_linear_prepack(__torch__.torch.classes.ipex.LinearContext[] layers) -> "
         "__torch__.torch.classes.ipex.GroupedLinearContext",
         grouped_linear_prepack);
  define(
      m,
      "grouped_linear_run(Tensor input, Tensor offsets, __torch__.torch.classes.ipex.GroupedLinearContext context) -> "
      "Tensor",
      grouped_linear_run);
}

}  // namespace
}  // namespace ipex::runtime
