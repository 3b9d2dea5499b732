// lower_ops: what no fusion took gets the op of ours that computes it, a row of a table for each op of aten.
//
//   before   %y = aten::cat(%tensors, %dim)
//   after    %y = ipex::cat(%tensors, %dim)
//
// Our ops look at each call, and fall back to PyTorch for what their kernels don't take. Every pass before this one knows an op
// by aten's name alone: an op of ours costs a row here and its kernel, and no pass more. A row is switched off by the op that
// it makes, as `disable=["ipex::cat"]`.
//
// lower_norms: norms that take post-ops get their op of ours by rows of the same kind, before the epilogues are fused.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "ir/calls.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "lower/lower_ops.h"
#include "pattern/fusion_rule.h"
#include "pattern/spelling.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::IValue;
using torch::jit::toIValue;

// What a value of the pattern has to be. Else the row rejects the node for this reason, or leaves it to another row if empty.
struct Condition {
  std::string value;
  Spelling::Condition holds;
  std::string reason;
};

struct Row {
  std::string pattern;
  std::string op;
  std::vector<Condition> conditions = {};
  // Values of the pattern by their names, and constants. Without, all that aten's op is given.
  std::vector<IValue> arguments = {};
};

Spelling::Condition is_bool(bool expected) {
  return [expected](const Value* value) { return toIValue(value) == IValue(expected); };
}

bool is_none_or_false(const Value* value) { return is_none(value) || is_bool(false)(value); }

bool is_unused(const Value* value) { return !value->hasUses(); }

bool is_computed(const Value* value) { return !toIValue(value); }

bool names_dimensions(const Value* dims) {
  const auto constant = toIValue(dims);
  return constant && constant->isIntList() && !constant->toIntVector().empty();
}

bool are_height_and_width(const Value* dims) {
  const std::vector<int64_t> orders[] = {{2, 3}, {3, 2}, {-2, -1}, {-1, -2}};
  return std::any_of(std::begin(orders), std::end(orders), [&](const auto& order) { return is_list_of(dims, order); });
}

bool has_channels_last(const std::shared_ptr<Graph>& graph) {
  bool found = false;
  for_each(graph, "ipex::to_channels_last", [&](Node*) { found = true; });
  return found;
}

const Condition dims_are_known{"dim", names_dimensions, "it does not say which dimensions"};
const Condition has_no_dtype{"dtype", is_none, "it gives a dtype of its own"};
// Constant ones that are left have a dtype or a geometry that no kernel takes, and have a reason in the report.
const Condition weight_is_computed{"weight", is_computed, ""};
const std::string other_options = "it asks for another dtype, device or layout";

Condition is_euclidean(const std::string& order) { return {order, equals(2), "it is not the Euclidean norm"}; }

// Tensors of another dtype, device or layout than the one that is given are mostly small.
std::vector<Condition> has_no_options() {
  return {{"dtype", is_none_or_false, other_options},
          {"layout", is_none_or_false, other_options},
          {"device", is_none_or_false, other_options},
          {"pin_memory", is_none_or_false, other_options}};
}

std::vector<Condition> has_no_options_and_format() {
  std::vector<Condition> all = has_no_options();
  all.push_back({"memory_format", is_none_or_false, other_options});
  return all;
}

std::vector<Condition> has_one_factor() {
  const std::string reason = "it gives a factor for each dimension";
  return {{"scales_h", is_none, reason}, {"scales_w", is_none, reason}};
}

std::vector<Row> norms() {
  const c10::List<std::string> no_post_ops;
  const std::string updates = "it updates running statistics", statistics = "its statistics are read";
  return {{"%y = aten::group_norm(%x, %groups, %weight, %bias, %eps, %cudnn)",
           "ipex::group_norm",
           {},
           {"%x", "%groups", "%weight", "%bias", "%eps", no_post_ops, true}},
          {"%y = aten::instance_norm(%x, %weight, %bias, %mean, %var, %use_input_stats, %momentum, %eps, %cudnn)",
           "ipex::instance_norm",
           {{"use_input_stats", is_bool(true), "it reads running statistics"},
            {"mean", is_none, updates},
            {"var", is_none, updates}},
           {"%x", "%weight", "%bias", "%eps", no_post_ops, true}},
          {"%y, %mean, %rstd = aten::native_group_norm(%x, %weight, %bias, %n, %c, %pixels, %groups, %eps)",
           "ipex::native_group_norm",
           {{"mean", is_unused, statistics}, {"rstd", is_unused, statistics}},
           {"%x", "%weight", "%bias", "%n", "%c", "%pixels", "%groups", "%eps", no_post_ops}}};
}

// In a graph that may have channels-last activations.
std::vector<Row> others(bool has_channels_last) {
  const Condition beside_channels_last{"x", [=](const Value*) { return has_channels_last; },
                                       "no image is channels-last"};
  return {
      {"%y = aten::cat(%tensors, %dim)", "ipex::cat"},
      {"%y = aten::roll(%x, %shifts, %dims)", "ipex::roll"},
      {"%y = aten::embedding(%weight, %indices, %padding, %scales, %sparse)", "ipex::look_up"},

      // TorchScript splits aten's into mm and add, and joins them again only where it knows the dtypes of all: a pass over
      // memory more, and another dtype under autocast, which casts products but not sums.
      {"%y = aten::addmm(%term, %x, %w, %beta, %alpha)", "ipex::addmm"},
      {"%y = aten::scaled_dot_product_attention(%q, %k, %v, %mask, %dropout, %is_causal, %scale, %gqa)",
       "ipex::scaled_dot_product_attention"},
      {"%y = aten::softmax(%x, %dim, %dtype)", "ipex::softmax"},
      {"%y = aten::log_softmax(%x, %dim, %dtype)", "ipex::log_softmax"},
      {"%y = aten::layer_norm(%x, %shape, %weight, %bias, %eps, %cudnn)",
       "ipex::layer_norm",
       {},
       {"%x", "%shape", "%weight", "%bias", "%eps"}},

      // Convolutions whose weight is computed; which kernel they have hangs on sizes.
      {"%y = aten::conv2d.(%x, %weight, %bias, %stride, %padding, %dilation, %groups)",
       "ipex::unpacked_convolution",
       {weight_is_computed},
       {"%x", "%weight", "%bias", "%stride", "%padding", "%dilation", "%groups", false}},

      // Pools. aten has fast averages for contiguous images alone.
      {"%y = aten::max_pool2d(%x, %kernel, %stride, %padding, %dilation, %ceil_mode)", "ipex::max_pool2d"},
      {"%y = aten::max_pool3d(%x, %kernel, %stride, %padding, %dilation, %ceil_mode)", "ipex::max_pool3d"},
      {"%y = aten::avg_pool1d(%x, %kernel, %stride, %padding, %ceil_mode, %count_pad)", "ipex::avg_pool1d"},
      {"%y = aten::avg_pool2d(%x, %kernel, %stride, %padding, %ceil_mode, %count_pad, %divisor)", "ipex::avg_pool2d"},
      {"%y = aten::avg_pool3d(%x, %kernel, %stride, %padding, %ceil_mode, %count_pad, %divisor)", "ipex::avg_pool3d"},
      {"%y = aten::adaptive_avg_pool2d(%x, %size)", "ipex::adaptive_avg_pool2d", {beside_channels_last}},
      {"%y = aten::mean.dim(%x, %dim, %keepdim, %dtype)",
       "ipex::mean",
       {{"dim", are_height_and_width, "it does not average whole images"}, has_no_dtype, beside_channels_last},
       {"%x", "%dim", "%keepdim"}},

      // Reductions: in vectors of what lies innermost, in any layout. aten has vectors for dense rows, and for what is contiguous.
      {"%y = aten::sum.dim_IntList(%x, %dim, %keepdim, %dtype)",
       "ipex::sum",
       {dims_are_known, has_no_dtype},
       {"%x", "%dim", "%keepdim"}},
      {"%y = aten::amax(%x, %dim, %keepdim)", "ipex::amax", {dims_are_known}},
      {"%y, %indices = aten::max.dim(%x, %dim, %keepdim)",
       "ipex::max_values",
       {{"indices", is_unused, "somebody reads its indices"}}},
      {"%y = aten::linalg_vector_norm(%x, %ord, %dim, %keepdim, %dtype)",
       "ipex::vector_norm",
       {is_euclidean("ord"), dims_are_known, has_no_dtype},
       {"%x", "%dim", "%keepdim"}},
      // As scripted models have it.
      {"%y = aten::norm.ScalarOpt_dim(%x, %p, %dim, %keepdim)",
       "ipex::vector_norm",
       {is_euclidean("p"), dims_are_known},
       {"%x", "%dim", "%keepdim"}},
      {"%y = aten::var.correction(%x, %dim, %correction, %keepdim)", "ipex::var", {dims_are_known}},
      {"%y = aten::std.correction(%x, %dim, %correction, %keepdim)", "ipex::std", {dims_are_known}},
      {"%y = aten::var.dim(%x, %dim, %unbiased, %keepdim)",
       "ipex::var",
       {dims_are_known, {"unbiased", is_bool(true), ""}},
       {"%x", "%dim", 1, "%keepdim"}},
      {"%y = aten::var.dim(%x, %dim, %unbiased, %keepdim)",
       "ipex::var",
       {dims_are_known, {"unbiased", is_bool(false), "its correction is no constant"}},
       {"%x", "%dim", 0, "%keepdim"}},
      {"%y = aten::std.dim(%x, %dim, %unbiased, %keepdim)",
       "ipex::std",
       {dims_are_known, {"unbiased", is_bool(true), ""}},
       {"%x", "%dim", 1, "%keepdim"}},
      {"%y = aten::std.dim(%x, %dim, %unbiased, %keepdim)",
       "ipex::std",
       {dims_are_known, {"unbiased", is_bool(false), "its correction is no constant"}},
       {"%x", "%dim", 0, "%keepdim"}},

      // Images made larger or smaller. Those with antialiasing stay: their receptive window grows with the factor.
      {"%y = aten::upsample_nearest2d.vec(%x, %size, %scales)",
       "ipex::upsample_nearest2d",
       {},
       {"%x", "%size", "%scales", true}},
      {"%y = aten::upsample_bilinear2d.vec(%x, %size, %align, %scales)",
       "ipex::upsample_bilinear2d",
       {},
       {"%x", "%size", "%align", "%scales", true}},
      {"%y = aten::upsample_bicubic2d.vec(%x, %size, %align, %scales)",
       "ipex::upsample_bicubic2d",
       {},
       {"%x", "%size", "%align", "%scales", true}},
      {"%y = aten::upsample_nearest2d(%x, %size, %scales_h, %scales_w)",
       "ipex::upsample_nearest2d",
       has_one_factor(),
       {"%x", "%size", "%scales_h", true}},
      {"%y = aten::upsample_bilinear2d(%x, %size, %align, %scales_h, %scales_w)",
       "ipex::upsample_bilinear2d",
       has_one_factor(),
       {"%x", "%size", "%align", "%scales_h", true}},
      {"%y = aten::upsample_bicubic2d(%x, %size, %align, %scales_h, %scales_w)",
       "ipex::upsample_bicubic2d",
       has_one_factor(),
       {"%x", "%size", "%align", "%scales_h", true}},

      // Tensors of one number, in memory that is kept between calls.
      {"%y = aten::new_zeros(%x, %size, %dtype, %layout, %device, %pin_memory)",
       "ipex::new_full",
       has_no_options(),
       {"%x", "%size", 0}},
      {"%y = aten::new_ones(%x, %size, %dtype, %layout, %device, %pin_memory)",
       "ipex::new_full",
       has_no_options(),
       {"%x", "%size", 1}},
      {"%y = aten::new_full(%x, %size, %value, %dtype, %layout, %device, %pin_memory)",
       "ipex::new_full",
       has_no_options(),
       {"%x", "%size", "%value"}},
      {"%y = aten::zeros_like(%x, %dtype, %layout, %device, %pin_memory, %memory_format)",
       "ipex::full_like",
       has_no_options_and_format(),
       {"%x", 0}},
      {"%y = aten::ones_like(%x, %dtype, %layout, %device, %pin_memory, %memory_format)",
       "ipex::full_like",
       has_no_options_and_format(),
       {"%x", 1}},
      {"%y = aten::full_like(%x, %value, %dtype, %layout, %device, %pin_memory, %memory_format)",
       "ipex::full_like",
       has_no_options_and_format(),
       {"%x", "%value"}},
  };
}

Node* make(const Row& row, const Match& match) {
  Graph* graph = match.last()->owningGraph();
  std::vector<Value*> arguments;
  for (const IValue& argument : row.arguments) {
    const bool is_value = argument.isString() && argument.toStringRef().starts_with('%');
    arguments.push_back(is_value ? match[argument.toStringRef().substr(1)] : graph->insertConstant(argument));
  }
  if (arguments.empty()) arguments = match.last()->inputs().vec();
  return insert_call(*graph, {row.op, ""}, arguments);
}

Spelling spelling_of(const Row& row) {
  Spelling spelling(row.pattern);
  for (const Condition& condition : row.conditions) {
    spelling = std::move(spelling).declines_unless(condition.value, condition.holds, condition.reason);
  }
  return std::move(spelling).becomes(row.op, [row](const Match& match) { return make(row, match); }).keeps_gradient();
}

bool run(Context& context, const std::vector<Row>& rows) {
  const auto& disabled = context.options.disable;
  std::vector<Spelling> spellings;
  for (const Row& row : rows) {
    if (!std::count(disabled.begin(), disabled.end(), row.op)) spellings.push_back(spelling_of(row));
  }
  return rewrite_spellings(context, spellings);
}

}  // namespace

Pass lower_norms() {
  return {"lower_norms", [](Context& context) { return run(context, norms()); }, needs(eager_layouts)};
}

Pass lower_ops() {
  return {"lower_ops", [](Context& context) { return run(context, others(has_channels_last(context.graph))); },
          establishes(ops_lowered) + breaks(aten_names)};
}

bool is_lowered(const Node* node) {
  static const std::unordered_set<Symbol> kinds = [] {
    std::unordered_set<Symbol> all;
    for (const Row& row : others(/*has_channels_last=*/false)) all.insert(Symbol::fromQualString(row.op));
    return all;
  }();
  if (!kinds.count(node->kind()) || !op_of(node)->overload.empty()) return false;
  return !has_argument(node, "moves") || node->namedInput("moves")->mustBeNone();  // else there is no op of aten's
}

bool is_to_lower(const Node* node) {
  static const std::unordered_map<Symbol, PatternLine> lines = [] {
    std::unordered_map<Symbol, PatternLine> all;
    for (const Row& row : others(/*has_channels_last=*/false)) {
      const PatternLine line(row.pattern);
      if (row.conditions.empty()) all.emplace(line.kind(), line);
    }
    return all;
  }();
  const auto line = lines.find(node->kind());
  return line != lines.end() && line->second.fits(node);
}

bool is_op_of_lowering(const std::string& name) {
  std::vector<Row> rows = norms();
  for (Row& row : others(/*has_channels_last=*/false)) rows.push_back(std::move(row));
  return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.op == name; });
}

}  // namespace ipex::passes
