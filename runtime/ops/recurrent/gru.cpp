// gru with packed weights.
//
//   ipex::gru_prepack(params, has_biases, num_layers, bidirectional, batch_first, math_mode) -> GruContext
//   ipex::gru_run(input, h0, context) -> (output, h_n)
//
// Arguments and results are those of aten::gru, in eval mode. The gates of params are in aten's order: reset, update,
// new.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/recurrent/recurrent.h"

namespace ipex::runtime {
namespace {

const Cell cell{"ipex::gru_run", gru_tile, false, true, &RecurrentKernels::gru_step};

class GruContext final : public RecurrentOp {
 public:
  using RecurrentOp::RecurrentOp;

  static c10::intrusive_ptr<GruContext> load(const State& state) {
    return c10::make_intrusive<GruContext>(runtime::load(cell, state));
  }

 private:
  std::vector<at::Tensor> reference(const at::Tensor& input, const std::vector<at::Tensor>& states,
                                    const std::vector<at::Tensor>& parameters,
                                    const RecurrentSpec& spec) const override {
    auto [output, hidden] = at::gru(input, states[0], parameters, spec.has_biases(), spec.layers(), /*dropout=*/0,
                                    /*train=*/false, spec.is_bidirectional, spec.is_batch_first);
    return {output, hidden};
  }
};

c10::intrusive_ptr<GruContext> gru_prepack(const std::vector<at::Tensor>& params, bool has_biases, int64_t num_layers,
                                           bool bidirectional, bool batch_first, std::optional<int64_t> math_mode) {
  auto context = c10::make_intrusive<GruContext>(from_parameters(cell, params, has_biases, num_layers, bidirectional,
                                                                 batch_first, pinned_math_mode(cell.name, math_mode)));
  context->ensure_packed();
  return context;
}

std::tuple<at::Tensor, at::Tensor> gru_run(const at::Tensor& input, const at::Tensor& h0,
                                           const c10::intrusive_ptr<GruContext>& context) {
  const std::vector<at::Tensor> results = context->run(input, {h0});
  return {results[0], results[1]};
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<GruContext>(m, "GruContext");
  m.def(
      "gru_prepack(Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first, "
      "int? math_mode) -> __torch__.torch.classes.ipex.GruContext",
      gru_prepack);
  m.def(
      "gru_run(Tensor input, Tensor h0, __torch__.torch.classes.ipex.GruContext context) -> "
      "(Tensor, Tensor)",
      gru_run);
}

}  // namespace
}  // namespace ipex::runtime
