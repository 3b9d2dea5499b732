// quantize: layers whose inputs were calibrated compute in 8 bits.
//
//   before   %context = ipex::convolution_prepack(%w, %b, ..)
//            %y = ipex::convolution_run(%x, %context, [%operand], ..)
//   after    %context = ipex::quantized_convolution_prepack(%w in 8 bits, %scales, %b, .., %input, %result=[], %operands)
//            %q = ipex::quantize(%x, %scale, %zero_point)
//            %y = ipex::quantized_convolution_run(%q, %context, [%operand], ..)
//
// A weight has a scale per output channel, its largest magnitude divided by 127. Results stay float32
// here.
//
// Scales come from calibration or, where nothing else was asked for, from the roundings of a model that was quantised when
// it was given. Its weights are 8-bit numbers already, and keep them. A rounding is
//
//   before   %y = aten::fake_quantize_per_tensor_affine(%x, %scale, %zero_point, 0, 255)
//   after    %numbers = ipex::quantize(%x, %scale, %zero_point)    %y = ipex::dequantize(%numbers, %scale, %zero_point)
//
// What layers make for others too is rounded for all of them, so that these can read numbers:
//
//   before   %s = aten::add(%y, %other, ..)
//   after    %numbers = ipex::quantize(%y, %scale, %zero_point)    %floats = ipex::dequantize(%numbers, %scale, %zero_point)
//            %s = aten::add(%floats, %other, ..)
//
// Attention whose query, key and value such layers make becomes one of 8-bit numbers. Views between the layer and the
// attention move bytes then:
//
//   before   %y = ipex::attention(%view_of_a, %view_of_b, %view_of_c, ..)
//   after    %y = ipex::attention_of_bytes(%view_of_bytes_of_a, .., %scales)
//
// Declines all on a CPU without int8 instructions, unless it is forced; and layers without a scale: calibration gave none, or the recipe left them in float, or nobody rounds what they read;
// and weights of a given model that are not of 8-bit numbers.
#include <ATen/ATen.h>
#include <ipex/isa.h>
#include <torch/csrc/jit/ir/constants.h>

#include <cmath>
#include <limits>
#include <map>

#include "ir/calls.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"
#include "precision/sites.h"

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

// The weight with a row for each output channel.
at::Tensor by_channel(const at::Tensor& weight, const Anchor& anchor) {
  if (!anchor.is_transposed()) return weight.reshape({weight.size(0), -1});
  const int64_t groups = toIValue(anchor.argument("groups"))->toInt();
  return weight.unflatten(0, {groups, -1}).transpose(1, 2).reshape({anchor.output_channels(), -1});
}

// One number per output channel, to divide the weight by.
at::Tensor over_weight(const at::Tensor& per_channel, const at::Tensor& weight, const Anchor& anchor) {
  std::vector<int64_t> shape(weight.dim(), 1);
  shape[0] = -1;
  if (!anchor.is_transposed()) return per_channel.view(shape);
  const int64_t groups = toIValue(anchor.argument("groups"))->toInt();
  shape[0] = weight.size(0);
  shape[1] = weight.size(1);
  return per_channel.view({groups, -1}).repeat_interleave(weight.size(0) / groups, 0).view(shape);
}

Bytes quantized(const at::Tensor& weight, const Anchor& anchor) {
  const at::Tensor largest = std::get<0>(by_channel(weight, anchor).abs().max(1));
  const at::Tensor scales = at::where(largest > 0, largest / 127, 1).to(at::kFloat);
  const at::Tensor numbers = (weight / over_weight(scales, weight, anchor)).round().clamp(-127, 127).to(at::kChar);
  return {numbers.contiguous(weight.suggest_memory_format()), scales};
}

// The scale with which all of these are 8-bit numbers, as far as float32 tells. None where there is none.
std::optional<double> scale_of_numbers(at::ArrayRef<float> values) {
  constexpr double most_off = 2e-4;
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  if (largest == 0) return 1;
  const auto fits = [&](double scale) {
    return std::all_of(values.begin(), values.end(), [&](float v) {
      const double number = v / scale, whole = std::nearbyint(number);
      return std::abs(number - whole) <= most_off && whole >= -128 && whole <= 127;
    });
  };
  for (int number = 128; number > 0; --number) {
    if (fits(largest / static_cast<double>(number))) return largest / static_cast<double>(number);
  }
  return std::nullopt;
}

// Of a weight that the given model rounds. What was folded into it has changed the scales, not the numbers.
std::optional<Bytes> numbers_of_weight(const at::Tensor& weight, const Anchor& anchor) {
  const at::Tensor rows = by_channel(weight, anchor).contiguous(), scales = at::empty({rows.size(0)}, at::kFloat);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const auto scale =
        scale_of_numbers({rows.const_data_ptr<float>() + i * rows.size(1), static_cast<size_t>(rows.size(1))});
    if (!scale || *scale < std::numeric_limits<float>::min()) return std::nullopt;
    scales.mutable_data_ptr<float>()[i] = static_cast<float>(*scale);
  }
  const at::Tensor numbers = (weight / over_weight(scales, weight, anchor)).round().clamp(-128, 127).to(at::kChar);
  return Bytes{numbers.contiguous(weight.suggest_memory_format()), scales};
}

// Beginnings, then ends.
std::vector<int64_t> both_ends(std::vector<int64_t> padding, size_t rank) {
  if (padding.size() == 1) padding.resize(rank, padding.front());
  if (padding.size() == rank) padding.insert(padding.end(), padding.begin(), padding.begin() + rank);
  return padding;
}

class Quantizing {
 public:
  explicit Quantizing(const std::map<std::string, Scale>& scales) : scales_(scales) {}

  const Scale* scale_of(const std::string& key) const {
    const auto found = scales_.find(key);
    return found == scales_.end() ? nullptr : &found->second;
  }

  std::optional<Bytes> rounded_weight(const Site& site) const {
    const Scale& input = *scale_of(site.input_key);
    const at::Tensor weight = toIValue(site.anchor.argument("weight"))->toTensor();
    return quantized(input.factors.defined() ? weight / input.factors : weight, site.anchor);
  }

  std::optional<Bytes> given_weight(const Site& site) const {
    return numbers_of_weight(toIValue(site.anchor.argument("weight"))->toTensor(), site.anchor);
  }

  void quantize(const AttentionSite& site) {
    Node* node = site.node;
    Graph& graph = *node->owningGraph();
    std::vector<double> scales;
    for (const AttentionSite::Part& part : site.parts) {
      const std::vector<double> numbers = numbers_of(*scale_of(part.key));
      scales.insert(scales.end(), numbers.begin(), numbers.end());
      round_for_all(part.origin, part.key);
    }
    const WithInsertPoint guard(node);
    const bool is_whole = node->kind() == c10::aten::scaled_dot_product_attention;
    std::vector<Value*> inputs = node->inputs().vec();
    if (!is_whole) inputs.pop_back();  // its math mode
    inputs.push_back(graph.insertConstant(scales));
    const char* op = is_whole ? "ipex::scaled_dot_product_attention_of_bytes" : "ipex::attention_of_bytes";
    replace(node, insert_call(graph, {op, ""}, inputs));
  }

  // All who read the value read numbers instead. Whether they had not before.
  bool round_for_all(Value* value, const std::string& key) {
    if (bytes_.count(key)) return false;
    Value* bytes = bytes_of(value->node()->next(), value, key);
    value->replaceAllUsesAfterNodeWith(bytes->node(), bytes);
    forget_types(bytes);
    return true;
  }

  void quantize(const SharedSite& site) {
    Value* value = site.value;
    const auto uses = value->uses();  // as they are now
    Value* bytes = bytes_of(value->node()->next(), value, site.key);
    Value* floats = floats_of(bytes, site.key);
    for (const Use& use : uses) {
      if (!asks_for_sizes(use.user)) use.user->replaceInput(use.offset, floats);
    }
  }

  // Of a tensor that is rounded before it is cut: those who are no layers read floats.
  void give_floats_of_pieces(const Site& site) {
    const Node* cut = site.anchor.input()->node()->input()->node();
    for (Value* piece : cut->output()->uses()[0].user->outputs()) {
      std::vector<Use> others = piece->uses();
      std::erase_if(others, [](const Use& use) { return use.offset == 0 && is_run(use.user); });
      if (others.empty()) continue;
      Value* floats = floats_of(piece, site.input_key);
      for (const Use& use : others) use.user->replaceInput(use.offset, floats);
    }
  }

  void quantize(const Site& site, const Bytes& weight) {
    const Anchor& anchor = site.anchor;
    Node* run = anchor.run();
    Graph& graph = *run->owningGraph();
    const WithInsertPoint guard(run);
    Value* input = site.reads_piece ? anchor.input() : bytes_of(run, anchor.input(), site.input_key);

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
    Value* context =
        graph.insert(Symbol::fromQualString(op + "_prepack"), prepack_arguments(site, weight, operand_scales));
    Node* quantized_run =
        graph.insert(Symbol::fromQualString(op + "_run"), {input, context, list, run->input(3)})->node();
    quantized_run->setSourceRange(run->sourceRange());
    quantized_run->setScope(run->scope());
    quantized_run->output()->copyMetadata(run->output());
    run->output()->replaceAllUsesWith(quantized_run->output());
    run->destroy();
  }

 private:
  std::vector<torch::jit::NamedValue> prepack_arguments(const Site& site, const Bytes& bytes,
                                                        const std::vector<double>& operands) const {
    const Anchor& anchor = site.anchor;
    const Scale& input = *scale_of(site.input_key);
    const IValue bias = *toIValue(anchor.argument("bias"));
    std::vector<torch::jit::NamedValue> arguments{bytes.numbers, bytes.scales,
                                                  bias.isTensor() ? IValue(bias.toTensor().to(at::kFloat)) : bias};
    const auto rank = static_cast<size_t>(anchor.spatial_rank());
    const auto ints = [&](const char* name) {
      std::vector<int64_t> values = toIValue(anchor.argument(name))->toIntVector();
      if (values.size() == 1) values.resize(rank, values.front());
      return values;
    };
    if (rank != 0) {
      arguments.emplace_back(ints("stride"));
      arguments.emplace_back(both_ends(ints("padding"), rank));
      arguments.emplace_back(ints("dilation"));
      arguments.emplace_back(*toIValue(anchor.argument("groups")));
    }
    arguments.emplace_back(*toIValue(anchor.argument("post_ops")));
    arguments.emplace_back(numbers_of(input));
    arguments.emplace_back(std::vector<double>());
    arguments.emplace_back(operands);
    if (rank != 0) {
      arguments.emplace_back(*toIValue(anchor.argument("transposed")));
      arguments.emplace_back(ints("output_padding"));
    }
    return arguments;
  }

  // Of views, which were views of floats.
  static void forget_types(Value* value) {
    for (const Use& use : value->uses()) {
      for (Value* made : use.user->outputs()) {
        if (!has_tensor_type(made)) {
          if (made->type()->isSubtypeOf(*c10::ListType::ofTensors())) forget_types(made);
          continue;
        }
        made->setType(c10::TensorType::get());
        if (use.offset == 0 && has_trait(use.user, trait::keeps_dtype)) forget_types(made);
      }
    }
  }

  Value* floats_of(Value* bytes, const std::string& key) {
    const Scale& scale = *scale_of(key);
    const WithInsertPoint guard(bytes->node()->next());
    return bytes->owningGraph()->insert(Symbol::fromQualString("ipex::dequantize"),
                                        {bytes, scale.scale, scale.zero_point});
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

// The scales of a model that was quantised when it was given.
std::map<std::string, Scale> given_scales(const std::vector<Site>& sites) {
  std::map<std::string, Scale> scales;
  const auto add = [&](const std::string& key, const Value* value) {
    if (const auto rounded = rounding_of(value)) scales[key] = {rounded->scale, rounded->zero_point, {}};
  };
  for (const Site& site : sites) {
    add(site.input_key, site.anchor.input());
    for (size_t i = 0; i < site.operand_keys.size(); ++i) {
      if (site.operand_keys[i]) add(*site.operand_keys[i], site.anchor.operands()[i]);
    }
  }
  return scales;
}

// A rounding is done in two steps, of which layers that read numbers need the first one only.
void split(Node* rounding) {
  Graph& graph = *rounding->owningGraph();
  const WithInsertPoint guard(rounding);
  Value *scale = rounding->input(1), *zero_point = rounding->input(2);
  Value* numbers =
      graph.insert(Symbol::fromQualString("ipex::quantize"), {rounding->input(0), scale, zero_point, IValue()});
  numbers->node()->setSourceRange(rounding->sourceRange());
  Value* floats = graph.insert(Symbol::fromQualString("ipex::dequantize"), {numbers, scale, zero_point});
  replace(rounding, floats->node());
}

bool run(Context& context) {
  const auto& quantization = context.options.quantization;
  if (quantization && quantization->observes) return false;
  bool is_given = false;
  for_each_node(context.graph->block(), [&](Node* node) { is_given |= is_rounding(node); });
  if (!quantization && !is_given) return false;
  const Sites sites = quantizable_sites(context);
  const std::map<std::string, Scale> given = quantization ? std::map<std::string, Scale>() : given_scales(sites.layers);
  if (quantization && !quantization->forced && !isa::has_int8()) {
    TORCH_WARN(
        "ipex.quantization.convert: expected a CPU with int8 instructions (AVX512_VNNI or AVX2_VNNI), got one without, "
        "or "
        "with a cap. The model stays in float32, which is faster here. Recipe(forced=True) quantises it all the same.");
    for (const Site& site : sites.layers) {
      context.declined(site.anchor.run(),
                       "this CPU has no int8 instructions, or a cap forbids them: float32 is faster");
    }
    return false;
  }
  Quantizing quantizing(quantization ? quantization->scales : given);
  bool changed = false;
  // First: the layers that make their tensors are then replaced.
  for (const AttentionSite& site : sites.attentions) {
    if (std::any_of(std::begin(site.parts), std::end(site.parts),
                    [&](const AttentionSite::Part& part) { return !quantizing.scale_of(part.key); })) {
      context.declined(site.node, "its query, key or value has no scale");
      continue;
    }
    context.applied(site.node, "computes in int8");
    quantizing.quantize(site);
    changed = true;
  }
  for (const SharedSite& site : sites.shared) {
    if (!quantizing.scale_of(site.key)) continue;
    quantizing.quantize(site);
    context.applied(site.value->node(), "is rounded for all who read it");
    changed = true;
  }
  for (const Site& site : sites.layers) {
    const Scale* scale = quantizing.scale_of(site.input_key);
    if (site.reads_piece && scale && quantizing.round_for_all(site.seen, site.input_key)) {
      quantizing.give_floats_of_pieces(site);
    }
  }
  for (const Site& site : sites.layers) {
    if (!quantizing.scale_of(site.input_key)) {
      context.declined(site.anchor.run(),
                       quantization ? "its input has no scale" : "what it reads is not rounded to 8-bit numbers");
      continue;
    }
    const auto weight = quantization ? quantizing.rounded_weight(site) : quantizing.given_weight(site);
    if (!weight) {
      context.declined(site.anchor.run(), "its weight is not one of 8-bit numbers");
      continue;
    }
    context.applied(site.anchor.run(), "computes in int8");
    quantizing.quantize(site, *weight);
    changed = true;
  }
  for_each_node(context.graph->block(), [&](Node* node) {
    if (!is_rounding(node)) return;
    split(node);
    changed = true;
  });
  return changed;
}

}  // namespace

Pass quantize() {
  return {"quantize", run, needs(full_precision, layers_apart, plain_arithmetic) + breaks(full_precision),
          /*reasons_stay=*/true};
}

}  // namespace ipex::passes
