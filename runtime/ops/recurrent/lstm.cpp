// lstm with packed weights, in float32 or in int8.
//
//   ipex::lstm_prepack(params, has_biases, num_layers, bidirectional, batch_first, math_mode) -> LstmContext
//   ipex::lstm_run(input, h0, c0, context) -> (output, h_n, c_n)
//   ipex::dynamic_lstm_prepack(params, has_biases, num_layers, bidirectional, batch_first) -> DynamicLstmContext
//   ipex::dynamic_lstm_run(input, h0, c0, context) -> (output, h_n, c_n)
//
// Arguments and results are those of aten::lstm, in eval mode. The gates of params are in aten's order: input, forget,
// new, output.
#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/recurrent/recurrent.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

const Cell cell{"ipex::lstm_run", lstm_tile, true, false, &RecurrentKernels::lstm_step};
const Cell dynamic_cell{"ipex::dynamic_lstm_run", lstm_tile, true, false, &RecurrentKernels::lstm_step,
                        /*is_int8=*/true};

class LstmContext : public RecurrentOp {
 public:
  using RecurrentOp::RecurrentOp;

  static c10::intrusive_ptr<LstmContext> load(const State& state) {
    return c10::make_intrusive<LstmContext>(runtime::load(cell, state));
  }

 private:
  std::vector<at::Tensor> reference(const at::Tensor& input, const std::vector<at::Tensor>& states,
                                    const std::vector<at::Tensor>& parameters,
                                    const RecurrentSpec& spec) const override {
    auto [output, hidden, cell_state] =
        at::lstm(input, states, parameters, spec.has_biases(), spec.layers(), /*dropout=*/0, /*train=*/false,
                 spec.is_bidirectional, spec.is_batch_first);
    return {output, hidden, cell_state};
  }
};

class DynamicLstmContext final : public LstmContext {
 public:
  using LstmContext::LstmContext;

  static c10::intrusive_ptr<DynamicLstmContext> load(const State& state) {
    return c10::make_intrusive<DynamicLstmContext>(runtime::load(dynamic_cell, state));
  }
};

c10::intrusive_ptr<LstmContext> lstm_prepack(const std::vector<at::Tensor>& params, bool has_biases, int64_t num_layers,
                                             bool bidirectional, bool batch_first, std::optional<int64_t> math_mode) {
  auto context = c10::make_intrusive<LstmContext>(from_parameters(cell, params, has_biases, num_layers, bidirectional,
                                                                  batch_first, pinned_math_mode(cell.name, math_mode)));
  context->ensure_packed();
  return context;
}

c10::intrusive_ptr<DynamicLstmContext> dynamic_lstm_prepack(const std::vector<at::Tensor>& params, bool has_biases,
                                                            int64_t num_layers, bool bidirectional, bool batch_first) {
  const RecurrentSpec spec =
      from_parameters(cell, params, has_biases, num_layers, bidirectional, batch_first, std::nullopt);
  auto context = c10::make_intrusive<DynamicLstmContext>(in_int8(dynamic_cell, spec));
  context->ensure_packed();
  return context;
}

template <typename Context>
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm_run(const at::Tensor& input, const at::Tensor& h0,
                                                        const at::Tensor& c0,
                                                        const c10::intrusive_ptr<Context>& context) {
  const std::vector<at::Tensor> results = context->run(input, {h0, c0});
  return {results[0], results[1], results[2]};
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<LstmContext>(m, "LstmContext");
  define_context<DynamicLstmContext>(m, "DynamicLstmContext");
  define(m,
         "lstm_prepack(Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first, "
         "int? math_mode) -> __torch__.torch.classes.ipex.LstmContext",
         lstm_prepack);
  define(m,
         "lstm_run(Tensor input, Tensor h0, Tensor c0, __torch__.torch.classes.ipex.LstmContext context) -> "
         "(Tensor, Tensor, Tensor)",
         lstm_run<LstmContext>);
  define(
      m,
      "dynamic_lstm_prepack(Tensor[] params, bool has_biases, int num_layers, bool bidirectional, bool batch_first) -> "
      "__torch__.torch.classes.ipex.DynamicLstmContext",
      dynamic_lstm_prepack);
  define(
      m,
      "dynamic_lstm_run(Tensor input, Tensor h0, Tensor c0, __torch__.torch.classes.ipex.DynamicLstmContext context) "
      "-> "
      "(Tensor, Tensor, Tensor)",
      lstm_run<DynamicLstmContext>);
}

}  // namespace
}  // namespace ipex::runtime
