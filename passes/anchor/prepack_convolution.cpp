// prepack_convolution: split a convolution with a constant weight into packing, done once, and running.
//
//   before   %y = aten::conv2d(%x, %w, %b, %stride, %padding, %dilation, %groups)
//   after    %context = ipex::convolution_prepack(%w, %b, %stride, %padding, %dilation, %groups, %transposed=0, ..)
//            %y = ipex::convolution_run(%x, %context, %operands=[], %eager_layout=1)
//
// Takes 1-, 2- and 3-d ones, transposed ones, padding as numbers or as 'same' or 'valid', and the names under which
// tracing records them. Padding that differs between the two ends, as 'same' has it for even kernels, is given as the
// beginnings followed by the ends.
// Declines when an argument other than %x is no constant, or when the weight is not float32, bfloat16 or
// float16.
#include <torch/csrc/jit/ir/constants.h>

#include "anchor/anchor.h"
#include "anchor/prepack.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using Ints = std::vector<int64_t>;
using torch::jit::IValue;
using torch::jit::toIValue;

struct Geometry {
  Ints stride, padding, dilation, output_padding;
  int64_t groups = 1;
  bool transposed = false;
};

// The padding that 'same' and 'valid' stand for.
std::optional<std::string> read_mode(const std::string& mode, at::IntArrayRef kernel, Geometry& geometry) {
  geometry.padding.assign(kernel.size(), 0);
  if (mode == "valid") return std::nullopt;
  if (mode != "same") return "its padding is '" + mode + "', which is unknown";
  for (const int64_t stride : geometry.stride) {
    if (stride != 1) return "its padding is 'same' but its stride is not 1";
  }
  geometry.padding.resize(2 * kernel.size());
  for (size_t i = 0; i < kernel.size(); ++i) {
    const int64_t total = geometry.dilation[i] * (kernel[i] - 1);
    geometry.padding[i] = total / 2;
    geometry.padding[kernel.size() + i] = total - total / 2;
  }
  return std::nullopt;
}

std::optional<std::string> read(const Node* node, Geometry& geometry) {
  if (const auto reason = reason_against_weight(node)) return reason;
  const at::Tensor weight = toIValue(node->namedInput("weight"))->toTensor();
  const std::string kind = node->kind().toQualString(), rank = c10::str(weight.dim() - 2, 'd');
  // aten::convolution has any rank, aten::conv2d one.
  if (weight.dim() < 3 || weight.dim() > 5 || (kind.ends_with('d') && !kind.ends_with(rank))) {
    return c10::str("its weight has ", weight.dim(), " dimensions");
  }
  const at::IntArrayRef kernel = weight.sizes().slice(2);

  std::map<std::string, IValue> arguments;
  for (const char* name : {"stride", "padding", "dilation", "groups", "transposed", "output_padding"}) {
    if (!node->hasNamedInput(name)) continue;
    const auto value = toIValue(node->namedInput(name));
    if (!value) return std::string("its ") + name + " is not a constant";
    arguments[name] = *value;
  }
  const auto ints = [&](const char* name) {
    Ints values = arguments.count(name) ? arguments[name].toIntVector() : Ints{0};
    if (values.size() == 1) values.resize(kernel.size(), values.front());
    return values;
  };
  geometry.stride = ints("stride");
  geometry.dilation = ints("dilation");
  geometry.output_padding = ints("output_padding");
  geometry.groups = arguments["groups"].toInt();
  geometry.transposed =
      arguments.count("transposed") ? arguments["transposed"].toBool() : kind.find("transpose") != std::string::npos;
  if (arguments["padding"].isString()) {
    if (const auto reason = read_mode(arguments["padding"].toStringRef(), kernel, geometry)) return reason;
  } else {
    geometry.padding = ints("padding");
  }
  for (const auto& [values, least] : {std::pair{geometry.stride, 1}, {geometry.padding, 0}, {geometry.dilation, 1}}) {
    const bool has_ends = least == 0 && values.size() == 2 * kernel.size();
    const bool is_whole = values.size() == kernel.size() || has_ends;
    if (!is_whole || *std::min_element(values.begin(), values.end()) < least) return "its geometry is not valid";
  }
  if (geometry.groups < 1 || weight.size(0) % geometry.groups != 0) return "its groups do not divide its channels";
  return reason_against_bias(node, geometry.transposed ? weight.size(1) * geometry.groups : weight.size(0));
}

Node* rewrite(Node* node, const Geometry& geometry) {
  const torch::jit::WithInsertPoint guard(node);
  const auto constant = [&](const IValue& value) { return shared_constant(*node->owningGraph(), value); };
  const std::vector<Value*> inputs{node->namedInput("weight"),    node->namedInput("bias"),
                                   constant(geometry.stride),     constant(geometry.padding),
                                   constant(geometry.dilation),   constant(geometry.groups),
                                   constant(geometry.transposed), constant(geometry.output_padding)};
  const Anchor anchor = Anchor::insert_before(node, "convolution", inputs, node->input(0));
  static const OpName wants_batch("aten::convolution");
  if (wants_batch.is_of(node)) anchor.set_argument("needs_batch", true);
  return anchor.run();
}

bool run(Context& context) {
  bool changed = false;
  for_each_node(context.graph->block(), [&](Node* node) {
    if (!has_trait(node, trait::convolves)) return;
    Geometry geometry;
    if (const auto reason = read(node, geometry)) return context.declined(node, *reason);
    context.applied(node, "prepacked");
    replace(node, rewrite(node, geometry));
    changed = true;
  });
  return changed;
}

}  // namespace

std::optional<std::string> reason_against_prepacking_convolution(const Node* convolution) {
  Geometry geometry;
  return read(convolution, geometry);
}

Pass prepack_convolution() {
  return {"prepack_convolution", run, establishes(anchors_prepacked) + breaks(aten_layers)};
}

}  // namespace ipex::passes
