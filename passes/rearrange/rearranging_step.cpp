#include "rearrange/rearranging_step.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <limits>

#include "ir/constants.h"
#include "ir/lists.h"
#include "ir/size_list.h"
#include "ops/op_table.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

bool are_numbers(const RearrangingStep::Argument& argument) {
  const Value* value = argument.value;
  if (value->type()->isSubtypeOf(*c10::IntType::get()) || elements_of(value)) return true;
  const auto constant = toIValue(value);
  return constant && (constant->isIntList() || constant->isNone());
}

// Each of them as a value.
std::vector<Value*> numbers_of(const RearrangingStep::Argument& argument) {
  Value* value = argument.value;
  if (const auto elements = elements_of(value)) return *elements;
  Graph* graph = value->owningGraph();
  const auto constant = toIValue(value);
  if (constant && constant->isNone()) return {graph->insertConstant(argument.if_none)};
  if (!constant || !constant->isIntList()) return {value};
  std::vector<Value*> numbers;
  for (const int64_t number : constant->toIntVector()) numbers.push_back(graph->insertConstant(number));
  return numbers;
}

std::optional<std::string> name_of_step(const Node* node) {
  static const std::pair<OpName, const char*> names[] = {{OpName("aten::reshape"), "reshape"},
                                                         {OpName("aten::view."), "reshape"},
                                                         {OpName("aten::permute"), "permute"},
                                                         {OpName("aten::transpose.int"), "transpose"},
                                                         {OpName("aten::unsqueeze"), "unsqueeze"},
                                                         {OpName("aten::flatten.using_ints"), "flatten"},
                                                         {OpName("aten::im2col"), "im2col"},
                                                         {OpName("aten::col2im"), "col2im"},
                                                         {OpName("aten::contiguous"), "contiguous"},
                                                         {OpName("ipex::restore_layout"), "contiguous"},
                                                         {OpName("ipex::to_channels_last"), "channels_last"}};
  for (const auto& [op, name] : names) {
    if (op.is_of(node)) return name;
  }
  return std::nullopt;
}

bool leaves_layout_open(const Node* node) {
  static const OpName contiguous("aten::contiguous"), restore("ipex::restore_layout");
  if (contiguous.is_of(node)) return number(node->input(1)) != static_cast<int>(at::MemoryFormat::Contiguous);
  return restore.is_of(node) && !is_false(node->input(1));
}

// Each of the lists that im2col and col2im take has two numbers, of rows and of columns. col2im adds up what overlaps.
bool moves_windows(const Node* node) {
  static const OpName col2im("aten::col2im");
  const auto lists = node->inputs().slice(1);
  if (std::any_of(lists.begin(), lists.end(), [](const Value* list) { return length_of(list) != 2; })) return false;
  if (!col2im.is_of(node)) return true;
  const auto kernel = toIValue(node->namedInput("kernel_size")), stride = toIValue(node->namedInput("stride"));
  return kernel && stride && kernel->toIntVector() == stride->toIntVector();
}

// aten::pad and aten::constant_pad_nd, with zeros.
bool pads_with_zeros(const Node* node) {
  static const OpName pad("aten::pad"), constant_pad("aten::constant_pad_nd");
  if (constant_pad.is_of(node)) return number(node->input(2)) == 0;
  if (!pad.is_of(node)) return false;
  const auto mode = toIValue(node->input(2));
  const bool is_constant = mode && mode->isString() && mode->toStringRef() == "constant";
  return is_constant && (node->input(3)->mustBeNone() || number(node->input(3)) == 0);
}

// aten::roll by a shift for each of some dimensions. Without dimensions it rolls all elements as one row.
bool rolls_dimensions(const Node* node) {
  static const OpName roll("aten::roll");
  if (!roll.is_of(node)) return false;
  const auto shifts = length_of(node->input(1)), dimensions = length_of(node->input(2));
  return shifts && shifts == dimensions && *shifts > 0;
}

std::optional<RearrangingStep> if_known(RearrangingStep step) {
  const bool known = std::all_of(step.arguments.begin(), step.arguments.end(), are_numbers);
  return known ? std::optional(std::move(step)) : std::nullopt;
}

}  // namespace

bool RearrangingStep::may_copy() const {
  static const std::string views[] = {"permute", "transpose", "unsqueeze", "slice"};
  return std::find(std::begin(views), std::end(views), name) == std::end(views);
}

std::optional<RearrangingStep> read_step(Node* node) {
  const auto name = name_of_step(node);
  if (!name || leaves_layout_open(node)) return std::nullopt;
  RearrangingStep step{node, *name, {}};
  if (*name == "contiguous") return step;
  if ((*name == "im2col" || *name == "col2im") && !moves_windows(node)) return std::nullopt;
  for (Value* argument : node->inputs().slice(1)) step.arguments.push_back({argument});
  return if_known(std::move(step));
}

std::optional<RearrangingStep> read_step_of_rows(Node* node) {
  static const OpName slice("aten::slice.Tensor");
  if (rolls_dimensions(node)) return if_known({node, "roll", {{node->input(1)}, {node->input(2)}}});
  if (pads_with_zeros(node)) return if_known({node, "pad", {{node->input(1)}}});
  if (!slice.is_of(node)) return read_step(node);
  const int64_t last = std::numeric_limits<int64_t>::max();
  return if_known({node, "slice", {{node->input(1)}, {node->input(2)}, {node->input(3), last}, {node->input(4)}}});
}

StepsAsData as_data(const std::vector<RearrangingStep>& steps) {
  Graph* graph = steps.front().node->owningGraph();
  c10::List<std::string> names;
  c10::List<int64_t> counts;
  std::vector<Value*> numbers;
  for (const RearrangingStep& step : steps) {
    const size_t before = numbers.size();
    for (const auto& argument : step.arguments) {
      const std::vector<Value*> own = numbers_of(argument);
      numbers.insert(numbers.end(), own.begin(), own.end());
    }
    names.push_back(step.name);
    counts.push_back(static_cast<int64_t>(numbers.size() - before));
  }
  Value* all_numbers = graph->insertNode(graph->createList(c10::IntType::get(), numbers))->output();
  return {graph->insertConstant(names), graph->insertConstant(counts), all_numbers};
}

}  // namespace ipex::passes
