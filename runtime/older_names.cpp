// Ops that files of earlier versions call, each as what it is called today: a row with the schema that it had. Arguments are
// those of the same name; `constants` are given beside them, and what nobody gives has its default.
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "packed/door.h"

namespace ipex::runtime {
namespace {

using c10::IValue;

struct OlderName {
  std::string schema;
  c10::OperatorName today;
  std::vector<std::pair<std::string, IValue>> constants = {};
  std::string port = "rounded";  // which takes a scale and the zero point behind it as one list
};

std::vector<OlderName> older_names() {
  std::vector<OlderName> rows;
  const std::string chain = "(Tensor[] inputs, str[] steps", one = ") -> Tensor", two = ") -> (Tensor, Tensor)";
  const c10::OperatorName elementwise("ipex::elementwise", ""), sum("ipex::elementwise", "sum");
  rows.push_back({"elementwise.cast" + chain + ", bool[] restored, ScalarType? dtype" + one, elementwise});
  rows.push_back({"elementwise.bytes" + chain + ", float scale, int zero_point" + one, elementwise});
  rows.push_back({"elementwise.of_bytes" + chain + ", float[] affines, float[] rounded" + one, elementwise});
  rows.push_back({"contiguous_elementwise" + chain + one, elementwise, {{"in_one_piece", true}}});
  rows.push_back({"sliced_elementwise" + chain + ", int outermost" + one, elementwise});
  for (const bool is_mean : {false, true}) {
    const std::string op = is_mean ? "elementwise_mean" : "elementwise_sum", over = ", int[] dim, bool keepdim";
    rows.push_back({op + chain + over + one, sum, {{"is_mean", is_mean}}});
    rows.push_back({op + ".cast" + chain + over + ", bool[] restored" + one, sum, {{"is_mean", is_mean}}});
  }

  const c10::OperatorName layer("ipex::layer_norm", ""), layer_of_sum("ipex::layer_norm", "of_sum");
  const std::string norm = "int[] normalized_shape, Tensor? weight, Tensor? bias, float eps",
                    of_x = "(Tensor x, " + norm;
  const std::string of_sum = "(Tensor a, Tensor b, " + norm + ", bool keep_sum, bool in_place";
  const std::string moved = ", __torch__.torch.classes.ipex.RowMoves moves, int[] numbers";
  const auto in_each_dtype = [&](const OlderName& row, const std::string& arguments, const std::string& results) {
    rows.push_back(
        {row.schema + ".bytes" + arguments + ", float scale, int zero_point" + results, row.today, row.constants});
    rows.push_back({row.schema + ".lowered" + arguments + ", ScalarType dtype" + results, row.today, row.constants});
  };
  const auto all = [&](const OlderName& row, const std::string& arguments, const std::string& results,
                       const std::string& by_default = "") {
    rows.push_back({row.schema + arguments + by_default + results, row.today, row.constants});
    in_each_dtype(row, arguments, results);
  };
  in_each_dtype({"layer_norm", layer}, of_x, one);
  all({"layer_norm_to_rows", layer, {{"moves_result", true}}}, of_x + moved, one);
  all({"layer_norm_of_rows", layer}, of_x + moved, one);
  all({"add_layer_norm", layer_of_sum}, of_sum, two, "=False");
  all({"add_layer_norm_to_rows", layer_of_sum, {{"moves_result", true}}}, of_sum + moved, two);
  all({"add_layer_norm_of_rows", layer_of_sum}, of_sum + moved, two);
  rows.push_back({"layer_norm_sum(Tensor residual, Tensor x, " + norm + one, layer});
  rows.push_back({"layer_norm_of_rows_sum(Tensor residual, Tensor x, " + norm + moved + one, layer});
  rows.push_back(
      {"rms_norm_sum(Tensor residual, Tensor x, Tensor? weight, float? eps, ScalarType? cast, "
       "int[]? normalized_shape, Tensor? like" +
           one,
       {"ipex::rms_norm", ""}});

  const std::string context = "__torch__.torch.classes.ipex.ConvolutionContext context",
                    quantized_context = "__torch__.torch.classes.ipex.QuantizedConvolutionContext context";
  const std::string to_the_layer = ", Tensor[] operands, bool eager_layout", padded = to_the_layer + ", int[] widths";
  const c10::OperatorName convolution("ipex::convolution_run", "");
  rows.push_back({"padded_convolution_run(Tensor input, " + context + padded + one, convolution});
  rows.push_back({"gated_convolution_run(Tensor input, Tensor gate, " + context + to_the_layer + one, convolution});
  rows.push_back({"padded_quantized_convolution_run(Tensor input, " + quantized_context + padded + one,
                  {"ipex::quantized_convolution_run", ""}});

  const std::string numbers = "float scale, int zero_point) -> Tensor";
  rows.push_back({"mean.of_bytes(Tensor x, int[] dim, bool keepdim, " + numbers, {"ipex::mean", ""}, {}, "affines"});
  rows.push_back({"adaptive_avg_pool2d.of_bytes(Tensor x, int[] output_size, " + numbers,
                  {"ipex::adaptive_avg_pool2d", ""},
                  {},
                  "affines"});
  rows.push_back(
      {"cat_batch_norm.bytes(Tensor[] tensors, Tensor? weight, Tensor? bias, Tensor? running_mean, "
       "Tensor? running_var, float eps, bool relu, " +
           numbers,
       {"ipex::cat_batch_norm", ""}});
  rows.push_back(
      {"attention_of_bytes.bytes(Tensor query, Tensor key_transposed, Tensor value, str[] steps, "
       "Tensor[] operands, float[] numbers, bool eager_layout, float[] scales, " +
           numbers,
       {"ipex::attention_of_bytes", ""}});
  rows.push_back(
      {"scaled_dot_product_attention_of_bytes.bytes(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, "
       "float dropout_p, bool is_causal, float? scale, bool enable_gqa, float[] scales, float result_scale, "
       "int zero_point) -> Tensor",
       {"ipex::scaled_dot_product_attention_of_bytes", ""}});
  return rows;
}

// How a call is made of the arguments of an older one.
class Call {
 public:
  Call(const c10::FunctionSchema& older, const OlderName& row)
      : today_(c10::Dispatcher::singleton().findSchemaOrThrow(row.today.name.c_str(), row.today.overload_name.c_str())),
        older_count_(older.arguments().size()) {
    for (const c10::Argument& argument : today_.schema().arguments()) {
      Source& source = sources_.emplace_back();
      source.place = older.argumentIndexWithName(argument.name());
      source.value = argument.default_value().value_or(IValue());
      for (const auto& [name, value] : row.constants) {
        if (name == argument.name()) source.value = value;
      }
      const auto zero_point = older.argumentIndexWithName("zero_point");
      if (argument.name() == row.port && zero_point) source.scale = *zero_point - 1;
    }
  }

  void run(c10::Stack* stack) const {
    c10::Stack given = torch::jit::pop(*stack, older_count_);
    for (const Source& source : sources_) {
      if (source.scale) {
        const auto scale = static_cast<size_t>(*source.scale);
        stack->emplace_back(
            c10::List<double>({given[scale].toDouble(), static_cast<double>(given[scale + 1].toInt())}));
      } else {
        stack->push_back(source.place ? given[static_cast<size_t>(*source.place)] : source.value);
      }
    }
    today_.callBoxed(stack);
  }

 private:
  struct Source {
    std::optional<int> place, scale;  // of the older arguments
    IValue value;
  };

  c10::OperatorHandle today_;
  size_t older_count_;
  std::vector<Source> sources_;
};

const Call& call_of(const c10::OperatorHandle& older) {
  static const std::map<std::string, Call> calls = [] {
    std::map<std::string, Call> all;
    for (const OlderName& row : older_names()) {
      const c10::FunctionSchema schema = schema_of("ipex::" + row.schema, c10::AliasAnalysisKind::FROM_SCHEMA);
      all.emplace(toString(schema.operator_name()), Call(schema, row));
    }
    return all;
  }();
  return calls.at(toString(older.operator_name()));
}

void run(const c10::OperatorHandle& older, c10::Stack* stack) { call_of(older).run(stack); }

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  for (const OlderName& row : older_names()) define(m, "ipex::" + row.schema, OnStack{run});
}

}  // namespace
}  // namespace ipex::runtime
