// quantize: layers whose inputs were calibrated compute in 8 bits.
//
//   before   %context = ipex::convolution_prepack(%w, %b, ..)
//            %y = ipex::convolution_run(%x, %context, [%operand], ..)
//   after    %context = ipex::quantized_convolution_prepack(%w in 8 bits, %scales, %b, .., %input, %result=[], %operands)
//            %q = ipex::quantize(%x, %scale, %zero_point)
//            %y = ipex::quantized_convolution_run(%q, %context, [%operand], ..)
//
// A weight has a scale per output channel, its largest magnitude divided by 127. Results stay float32 here; carry_bytes
// then lets 8-bit numbers pass from layer to layer. Runs after all folding and fusing in float32.
// Declines layers without a scale: calibration gave none, or the recipe left them in float.
#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <map>

#include "passes.h"
#include "quantization/sites.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;
using torch::jit::WithInsertPoint;
using Scale = Quantization::Scale;

std::vector<double> numbers_of(const Scale& scale) { return {scale.scale, static_cast<double>(scale.zero_point)}; }

struct Bytes {
  at::Tensor numbers, scales;
};

Bytes quantized(const at::Tensor& weight) {
  const at::Tensor largest = std::get<0>(weight.abs().reshape({weight.size(0), -1}).max(1));
  const at::Tensor scales = at::where(largest > 0, largest / 127, 1).to(at::kFloat);
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[0] = -1;
  const at::Tensor numbers = (weight / scales.view(shape)).round().clamp(-127, 127).to(at::kChar);
  return {numbers.contiguous(weight.suggest_memory_format()), scales};
}

// Beginnings, then ends.
std::vector<int64_t> both_ends(std::vector<int64_t> padding) {
  if (padding.size() == 1) padding.resize(2, padding.front());
  if (padding.size() == 2) padding.insert(padding.end(), padding.begin(), padding.begin() + 2);
  return padding;
}

class Quantizing {
 public:
  explicit Quantizing(const std::map<std::string, Scale>& scales) : scales_(scales) {}

  const Scale* scale_of(const std::string& key) const {
    const auto found = scales_.find(key);
    return found == scales_.end() ? nullptr : &found->second;
  }

  void quantize(const Site& site) {
    const Anchor& anchor = site.anchor;
    Node* run = anchor.run();
    Graph& graph = *run->owningGraph();
    const WithInsertPoint guard(run);
    Value* input = bytes_of(run, anchor.input(), site.input_key);

    std::vector<Value*> operands = anchor.operands().vec();
    std::vector<double> operand_scales;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Scale* scale = site.operand_keys[i] ? scale_of(*site.operand_keys[i]) : nullptr;
      if (scale) operands[i] = bytes_of(run, operands[i], *site.operand_keys[i]);
      const std::vector<double> numbers = scale ? numbers_of(*scale) : std::vector<double>{0, 0};
      operand_scales.insert(operand_scales.end(), numbers.begin(), numbers.end());
    }
    Value* list = graph.insertNode(graph.createList(c10::TensorType::get(), operands))->output();

    const bool is_linear = anchor.spatial_rank() == 0;
    const std::string op = is_linear ? "ipex::quantized_linear" : "ipex::quantized_convolution";
    Value* context = graph.insert(Symbol::fromQualString(op + "_prepack"), prepack_arguments(site, operand_scales));
    Node* quantized_run =
        graph.insertNode(graph.create(Symbol::fromQualString(op + "_run"), {input, context, list, run->input(3)}));
    quantized_run->setSourceRange(run->sourceRange());
    quantized_run->setScope(run->scope());
    quantized_run->output()->copyMetadata(run->output());
    run->output()->replaceAllUsesWith(quantized_run->output());
    run->destroy();
  }

 private:
  std::vector<torch::jit::NamedValue> prepack_arguments(const Site& site, const std::vector<double>& operands) const {
    const Anchor& anchor = site.anchor;
    const Scale& input = *scale_of(site.input_key);
    at::Tensor weight = toIValue(anchor.argument("weight"))->toTensor();
    if (input.factors.defined()) weight = weight / input.factors;
    const Bytes bytes = quantized(weight);
    const IValue bias = *toIValue(anchor.argument("bias"));
    std::vector<torch::jit::NamedValue> arguments{bytes.numbers, bytes.scales,
                                                  bias.isTensor() ? IValue(bias.toTensor().to(at::kFloat)) : bias};
    if (anchor.spatial_rank() != 0) {
      const auto ints = [&](const char* name) {
        std::vector<int64_t> values = toIValue(anchor.argument(name))->toIntVector();
        if (values.size() == 1) values.resize(2, values.front());
        return values;
      };
      arguments.emplace_back(ints("stride"));
      arguments.emplace_back(both_ends(ints("padding")));
      arguments.emplace_back(ints("dilation"));
      arguments.emplace_back(*toIValue(anchor.argument("groups")));
    }
    arguments.emplace_back(*toIValue(anchor.argument("post_ops")));
    arguments.emplace_back(numbers_of(input));
    arguments.emplace_back(std::vector<double>());
    arguments.emplace_back(operands);
    return arguments;
  }

  // One conversion of a tensor for all of its readers in a block.
  Value* bytes_of(Node* node, Value* value, const std::string& key) {
    Value*& bytes = bytes_[key];
    if (bytes) return bytes;
    const Scale& scale = *scale_of(key);
    const WithInsertPoint guard(node);
    const IValue factors = scale.factors.defined() ? IValue(scale.factors) : IValue();
    bytes = node->owningGraph()->insert(Symbol::fromQualString("ipex::quantize"),
                                        {value, scale.scale, scale.zero_point, factors});
    return bytes;
  }

  const std::map<std::string, Scale>& scales_;
  std::map<std::string, Value*> bytes_;
};

bool run(Context& context) {
  const auto& quantization = context.options.quantization;
  if (!quantization || quantization->observes) return false;
  Quantizing quantizing(quantization->scales);
  bool changed = false;
  for (const Site& site : quantizable_sites(context)) {
    if (!quantizing.scale_of(site.input_key)) {
      context.declined(site.anchor.run(), "its input has no scale");
      continue;
    }
    context.applied(site.anchor.run(), "computes in int8");
    quantizing.quantize(site);
    changed = true;
  }
  return changed;
}

}  // namespace

Pass quantize() { return {"quantize", run}; }

}  // namespace ipex::passes
