// gru with packed weights, in float32 or in int8.
//
//   ipex::gru_prepack(params, has_biases, num_layers, bidirectional, batch_first, math_mode) -> GruContext
//   ipex::gru_run(input, h0, context) -> (output, h_n)
//   ipex::dynamic_gru_prepack(params, has_biases, num_layers, bidirectional, batch_first) -> DynamicGruContext
//   ipex::dynamic_gru_run(input, h0, context) -> (output, h_n)
//
// Arguments and results are those of aten::gru, in eval mode. The gates of params are in aten's order: reset, update,
// new.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/recurrent/recurrent.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

const Cell cell{"ipex::gru_run", gru_tile, false, true, &RecurrentKernels::gru_step};
const Cell dynamic_cell{"ipex::dynamic_gru_run", gru_tile, false, true, &RecurrentKernels::gru_step,
                        /*is_int8=*/true};

class GruContext : public RecurrentOp {
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

class DynamicGruContext final : public GruContext {
 public:
  using GruContext::GruContext;

  static c10::intrusive_ptr<DynamicGruContext> load(const State& state) {
    return c10::make_intrusive<DynamicGruContext>(runtime::load(dynamic_cell, state));
  }
};

c10::intrusive_ptr<GruContext> gru_prepack(const std::vector<at::Tensor>& params, bool has_biases, int64_t num_layers,
                                           bool bidirectional, bool batch_first, std::optional<int64_t> math_mode) {
  auto context = c10::make_intrusive<GruContext>(from_parameters(cell, params, has_biases, num_layers, bidirectional,
                                                                 batch_first, pinned_math_mode(cell.name, math_mode)));
  context->ensure_packed();
  return context;
}

c10::intrusive_ptr<DynamicGruContext> dynamic_gru_prepack(const std::vector<at::Tensor>& params, bool has_biases,
                                                          int64_t num_layers, bool bidirectional, bool batch_first) {
  const RecurrentSpec spec =
      from_parameters(cell, params, has_biases, num_layers, bidirectional, batch_first, std::nullopt);
  auto context = c10::make_intrusive<DynamicGruContext>(in_int8(dynamic_cell, spec));
  context->ensure_packed();
  return context;
}

template <typename Context>
std::tuple<at::Tensor, at::Tensor> gru_run(const at::Tensor& input, const at::Tensor& h0,
                                           const c10::intrusive_ptr<Context>& context) {
  const std::vector<at::Tensor> results = context->run(input, {h0});
  return {results[0], results[1]};
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<GruContext>(m, "GruContext");
  define_context<DynamicGruContext>(m, "DynamicGruContext");
  define(m,
         "gru_prepack(Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first, "
         "int? math_mode) -> __torch__.torch.classes.ipex.GruContext",
         gru_prepack);
  define(m,
         "gru_run(Tensor input, Tensor h0, __torch__.torch.classes.ipex.GruContext context) -> "
         "(Tensor, Tensor)",
         gru_run<GruContext>);
  define(
      m,
      "dynamic_gru_prepack(Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first) -> "
      "__torch__.torch.classes.ipex.DynamicGruContext",
      dynamic_gru_prepack);
  define(m,
         "dynamic_gru_run(Tensor input, Tensor h0, __torch__.torch.classes.ipex.DynamicGruContext context) -> "
         "(Tensor, Tensor)",
         gru_run<DynamicGruContext>);
}

}  // namespace
}  // namespace ipex::runtime
