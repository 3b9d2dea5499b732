// fuse_attention: the two products of an attention, and all that is done to the scores in between, become one op that
// need not hold the scores.
//
//   before   %s = aten::matmul(%query, %key_transposed)
//            %d = aten::div(%s, %scale)
//            %m = aten::add(%d, %mask, %alpha=1)
//            %p = aten::softmax(%m, %dim=-1, %dtype=None)
//            %y = aten::matmul(%p, %value)
//   after    %y = ipex::attention(%query, %key_transposed, %value, ["matmul", "div", "add", "softmax", "matmul"],
//                                 [%scale, %mask], [-1], %eager_layout)
//
// Any number of steps, in any order, in place or not: mul, div, add, masked_fill, where, casts; views, which make images of
// windows, so that each window gets its mask; bmm and baddbmm as well as matmul; a query or a key that is multiplied by a number.
// They are data: the op does what they say, the fast way where that gives the same (runtime/ops/attention/attention.cpp).
// Attention of images has its channels before its pixels: %v @ %p^T, with the steps [.., "softmax", "turned_matmul"]. Where an
// einsum multiplied the probabilities, the last step is "spread_matmul".
// Declines when something else stands between the products, when somebody reads the scores or the probabilities (a model
// that returns its attention weights), when softmax is not over the last dimension, and when memory is overwritten in
// between.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/aliasing.h"
#include "ir/calls.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// A constant, or a value of type float or int.
struct Number {
  double constant;
  Value* value = nullptr;
};

// A step of the scores, and what it takes beside them.
struct Step {
  Node* node;
  Value* scores;  // null for the product that they begin with
  std::string name;
  std::vector<Value*> operands;
  std::vector<Number> numbers;
  Node* expansion = nullptr;   // what gave its mask the shape of the scores: the op does that by itself
  Value* reference = nullptr;  // for type_as: whose dtype it takes
};

struct Attention {
  std::vector<Step> steps;  // in the order of the graph, both products included
  Node* scaled = nullptr;   // what multiplies the query or the key by `factor`, if that becomes a step too
  bool scales_key = false;
  Number factor{};
  Node* scaled_turned = nullptr;  // what transposes that on the way to the product
  Node* turn = nullptr;           // what transposes the probabilities, where the product with the value is %v @ %p^T
  Node* spread = nullptr;         // what an einsum does to the probabilities, and
  Node* value = nullptr;          // to the value, where it reads their sizes
  std::string unknown;            // the op that none of them is, if the chain ends there
};

// The two dimensions that a node swaps, if they may be the last two.
std::optional<std::vector<Number>> swapped_dimensions(const Node* node) {
  if (node->kind() == c10::aten::transpose) {
    const auto a = number(node->input(1)), b = number(node->input(2));
    if (a && b) return std::vector{Number{*a}, Number{*b}};
  }
  const auto order = node->kind() == c10::aten::permute ? toIValue(node->input(1)) : std::nullopt;
  if (!order) return std::nullopt;
  std::vector<int64_t> dims = order->toIntVector();
  if (dims.size() < 2) return std::nullopt;
  std::swap(dims.end()[-1], dims.end()[-2]);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != static_cast<int64_t>(i)) return std::nullopt;
  }
  return std::vector{Number{static_cast<double>(dims.end()[-2])}, Number{static_cast<double>(dims.end()[-1])}};
}

// The dimensions that an einsum gives the probabilities, 0 for any. Empty where it permutes them, or the node does something else.
std::optional<double> rank_of_spread(const Node* node) {
  static const OpName einsum_operand("ipex::einsum_operand");
  const auto order = einsum_operand.is_of(node) ? toIValue(node->input(2)) : std::nullopt;
  const auto has_more = order ? toIValue(node->input(4)) : std::nullopt;
  if (!has_more || !has_more->isBool()) return std::nullopt;
  const std::vector<int64_t> dims = order->toIntVector();
  const auto rank = static_cast<int64_t>(dims.size());
  for (int64_t i = 0; i < rank; ++i) {
    if (dims[static_cast<size_t>(i)] != i - rank) return std::nullopt;
  }
  return has_more->toBool() ? 0 : static_cast<double>(rank);
}

// What an einsum does to the value before the product, if that asks for the sizes of the probabilities. Null where nothing does.
Node* value_of_einsum(const Node* product, const Value* probabilities) {
  Node* node = product->input(1)->node();
  if (kind_of(node) == "aten::mul") node = node->input(0)->node();
  const bool asks = kind_of(node) == "ipex::einsum_operand" && node->input(1) == probabilities;
  return asks && node->output()->uses().size() == 1 ? node : nullptr;
}

size_t query_of(const Node* product) { return product->kind() == c10::aten::baddbmm ? 1 : 0; }

class Reader {
 public:
  explicit Reader(Node* last) : last_(last) {}

  // The chain of steps that ends in the product `last_`. Empty when it is no attention.
  std::optional<Attention> read() {
    Node* spread = last_->input(0)->node();
    if (const auto rank = rank_of_spread(spread)) {
      auto attention = read({last_, spread->input(0), "spread_matmul", {}, {Number{*rank}}});
      if (attention) {
        attention->spread = spread;
        attention->value = value_of_einsum(last_, spread->input(0));
      }
      return attention;
    }
    if (auto attention = read({last_, last_->input(0), name_of_product(last_), {}, {}})) return attention;
    Node* turn = last_->input(1)->node();
    const auto swapped = swapped_dimensions(turn);
    if (!swapped) return std::nullopt;
    auto attention = read({last_, turn->input(0), "turned_" + name_of_product(last_), {}, *swapped});
    if (attention) attention->turn = turn;
    return attention;
  }

 private:
  std::optional<Attention> read(Step last) {
    Attention attention;
    bool seen_softmax = false;
    Value* scores = last.scores;
    attention.steps.push_back(std::move(last));
    while (scores) {
      auto step = read_step(scores->node());
      if (!step) {
        attention.unknown = kind_of(scores->node());
        if (attention.unknown.starts_with("prim::")) return std::nullopt;  // no scores were computed
        break;
      }
      seen_softmax |= step->name.starts_with("softmax");
      // Of what comes after softmax, only casts and views belong to an attention.
      static const std::vector<std::string> after_softmax{"to", "type_as", "view", "reshape"};
      if (!seen_softmax && !std::count(after_softmax.begin(), after_softmax.end(), step->name)) return std::nullopt;
      scores = step->scores;
      attention.steps.insert(attention.steps.begin(), std::move(*step));
    }
    if (!seen_softmax) return std::nullopt;
    for (const bool scales_key : {false, true}) {
      if (!attention.scaled) find_scaled(attention, scales_key);
    }
    resolve_references(attention);
    return attention;
  }

  static std::string name_of_product(const Node* node) { return node->kind() == c10::aten::bmm ? "bmm" : "matmul"; }

  void find_scaled(Attention& attention, bool scales_key) const {
    const Node* first = attention.steps.front().node;
    if (!attention.unknown.empty()) return;
    Value* scaled = first->input(query_of(first) + (scales_key ? 1 : 0));
    Node* turned = scaled->node();
    const bool is_turned = kind_of(turned) == "aten::transpose" && scaled->uses().size() == 1;
    if (is_turned) scaled = turned->input(0);
    Node* maker = scaled->node();
    if (kind_of(maker) != "aten::mul" || scaled->uses().size() != 1) return;
    const auto constant = number(maker->input(1));
    const auto factor = constant ? std::optional(Number{*constant}) : read_number(maker->input(1));
    if (!factor || maker->owningBlock() != last_->owningBlock()) return;
    for (const Node* node = maker; node != last_; node = node->next()) {
      const bool is_step = std::any_of(attention.steps.begin(), attention.steps.end(),
                                       [&](const Step& step) { return step.node == node; });
      if (!is_step && may_write_to(node, {maker->input(0)})) return;
    }
    attention.scaled = maker;
    attention.scales_key = scales_key;
    attention.factor = *factor;
    if (is_turned) attention.scaled_turned = turned;
  }

  // type_as names the step that has given the dtype.
  static void resolve_references(Attention& attention) {
    for (Step& step : attention.steps) {
      if (!step.reference) continue;
      const auto found = std::find_if(attention.steps.begin(), attention.steps.end(),
                                      [&](const Step& s) { return s.node == step.reference->node(); });
      if (found == attention.steps.end()) {
        attention.unknown = kind_of(step.node);
      } else {
        step.numbers = {{static_cast<double>(found - attention.steps.begin() + (attention.scaled ? 1 : 0))}};
      }
    }
  }

  static std::optional<Number> read_number(Value* value) {
    if (const auto known = toIValue(value); known && (known->isInt() || known->isDouble())) {
      return Number{known->toScalar().toDouble()};
    }
    return value->type()->kind() == c10::TypeKind::FloatType ? std::optional(Number{0, value}) : std::nullopt;
  }

  // The sizes of a view, and how many.
  static std::optional<std::vector<Number>> read_sizes(Value* list) {
    std::vector<Number> found{{0}};
    if (const auto known = toIValue(list)) {
      if (!known->isIntList()) return std::nullopt;
      for (const int64_t size : known->toIntList()) found.push_back({static_cast<double>(size)});
    } else if (const auto elements = elements_of(list)) {
      for (Value* size : *elements) {
        const auto constant = number(size);
        found.push_back(constant ? Number{*constant} : Number{0, size});
      }
    } else {
      return std::nullopt;
    }
    found.front().constant = static_cast<double>(found.size() - 1);
    return found;
  }

  static Number integer(const torch::jit::IValue& constant) { return {static_cast<double>(constant.toInt())}; }

  // A step with one more argument, a tensor or a number.
  std::optional<Step> with_argument(Step step, Value* argument, const char* suffix_of_tensor,
                                    const char* suffix_of_number) {
    const bool in_place = step.name.ends_with('_');
    if (in_place) step.name.pop_back();
    if (has_tensor_type(argument)) {
      step.name += suffix_of_tensor;
      step.operands.push_back(argument);
    } else if (const auto number = read_number(argument)) {
      step.name += suffix_of_number;
      step.numbers.push_back(*number);
    } else {
      return std::nullopt;
    }
    if (in_place) step.name += '_';
    return step;
  }

  std::optional<Step> read_step(Node* node) {
    if (!op_of(node)) return std::nullopt;
    const std::string kind = kind_of(node);
    const std::string name = kind.substr(kind.rfind(':') + 1);
    const auto inputs = node->inputs();
    if (kind == "aten::matmul" || kind == "aten::bmm") return Step{node, nullptr, name_of_product(node), {}, {}};
    if (kind == "aten::baddbmm") {
      const auto beta = read_number(inputs[3]), alpha = read_number(inputs[4]);
      if (!beta || !alpha) return std::nullopt;
      return Step{node, nullptr, name, {inputs[0]}, {*beta, *alpha}};
    }
    if (kind == "aten::softmax") {
      const auto dimension = toIValue(inputs[1]), dtype = toIValue(inputs[2]);
      if (!dimension || !dtype) return std::nullopt;
      Step step{node, inputs[0], name, {}, {integer(*dimension)}};
      if (dtype->isInt()) {
        step.name = "softmax_to";
        step.numbers.push_back(integer(*dtype));
      }
      return step;
    }
    if (kind == "aten::to" && inputs.size() == 5) {
      const auto dtype = toIValue(inputs[1]), copy = toIValue(inputs[3]);
      if (!dtype || !dtype->isInt() || !copy || !inputs[4]->mustBeNone()) return std::nullopt;
      return Step{node, inputs[0], name, {}, {integer(*dtype)}};
    }
    if (kind == "aten::type_as") {
      Step step{node, inputs[0], name, {}, {}};
      step.reference = inputs[1];
      return step;
    }
    if (kind == "aten::view" || kind == "aten::reshape") {
      auto sizes = inputs.size() == 2 ? read_sizes(inputs[1]) : std::nullopt;
      if (!sizes) return std::nullopt;
      return Step{node, inputs[0], name, {}, std::move(*sizes)};
    }
    if (kind == "aten::mul" || kind == "aten::add") {
      // The scores are on the side where the product is.
      const bool swap = !leads_to_product(inputs[0]) && leads_to_product(inputs[1]);
      Value *scores = inputs[swap ? 1 : 0], *other = inputs[swap ? 0 : 1];
      if (kind == "aten::add") return addition(node, name, scores, other);
      return with_argument({node, scores, name, {}, {}}, other, "", "_number");
    }
    if (kind == "aten::add_") return addition(node, name, inputs[0], inputs[1]);
    if (kind == "aten::mul_" || ((kind == "aten::div" || kind == "aten::div_") && inputs.size() == 2)) {
      return with_argument({node, inputs[0], name, {}, {}}, inputs[1], "", "_number");
    }
    if (kind == "aten::masked_fill" || kind == "aten::masked_fill_") {
      Node* maker = inputs[1]->node();
      const bool expands = kind_of(maker) == "aten::expand_as" && maker->input(1) == inputs[0] &&
                           inputs[1]->uses().size() == 1 && maker->owningBlock() == node->owningBlock();
      Step step{node, inputs[0], name, {expands ? maker->input(0) : inputs[1]}, {}};
      step.expansion = expands ? maker : nullptr;
      return with_argument(step, inputs[2], "_tensor", "");
    }
    if (kind == "aten::where" && inputs.size() == 3) {
      if (leads_to_product(inputs[1])) {
        return with_argument({node, inputs[1], name, {inputs[0]}, {}}, inputs[2], "_tensor", "");
      }
      // where(mask, -inf, scores) with a number is masked_fill.
      if (!has_tensor_type(inputs[1])) {
        return with_argument({node, inputs[2], "masked_fill", {inputs[0]}, {}}, inputs[1], "", "");
      }
    }
    return std::nullopt;
  }

  std::optional<Step> addition(Node* node, const std::string& name, Value* scores, Value* other) {
    if (!has_tensor_type(other) || number(node->input(2)) != 1) return std::nullopt;
    return Step{node, scores, name, {other}, {}};
  }

  // Whether the value is computed from a product by steps alone.
  bool leads_to_product(const Value* value) {
    for (int depth = 0; depth < 8; ++depth) {
      const std::string kind = kind_of(value->node());
      if (kind == "aten::matmul" || kind == "aten::bmm" || kind == "aten::baddbmm") return true;
      static const std::vector<std::string> carries{
          "aten::mul",         "aten::add",          "aten::div",  "aten::mul_", "aten::add_",   "aten::to",
          "aten::masked_fill", "aten::masked_fill_", "aten::div_", "aten::view", "aten::reshape"};
      if (kind == "aten::where") {
        value = value->node()->input(1);
      } else if (std::count(carries.begin(), carries.end(), kind)) {
        value = value->node()->input(0);
      } else {
        return false;
      }
    }
    return false;
  }

  Node* last_;
};

bool is_own(const Attention& attention, const Node* node) {
  return std::any_of(attention.steps.begin(), attention.steps.end(), [&](const Step& s) { return s.node == node; });
}

// What the fused op reads, later than the model did.
std::vector<Value*> values_read(const Attention& attention) {
  const Node* first = attention.steps.front().node;
  const size_t query = query_of(first);
  std::vector<Value*> read{first->input(query), first->input(query + 1)};
  for (const Step& step : attention.steps) read.insert(read.end(), step.operands.begin(), step.operands.end());
  return read;
}

std::optional<std::string> reason_against(const Attention& attention) {
  if (!attention.unknown.empty()) return attention.unknown + " stands between its products";
  const Node *first = attention.steps.front().node, *last = attention.steps.back().node;
  constexpr const char *between_blocks = "an if or a loop stands in between",
                       *read_elsewhere = "another reader needs its scores or probabilities";
  if (attention.turn) {
    if (attention.turn->owningBlock() != last->owningBlock()) return between_blocks;
    if (attention.turn->output()->uses().size() != 1) return read_elsewhere;
  }
  if (attention.spread && attention.spread->owningBlock() != last->owningBlock()) return between_blocks;
  for (const Step& step : attention.steps) {
    if (step.node->owningBlock() != last->owningBlock()) return between_blocks;
    size_t own_readers = 1;
    own_readers += attention.value && attention.value->input(1) == step.node->output();
    for (const Step& other : attention.steps) {
      own_readers += other.reference == step.node->output();
      own_readers += other.expansion && other.scores == step.node->output();
    }
    if (step.node != last && step.node->output()->uses().size() != own_readers) {
      return read_elsewhere;
    }
    if (step.name.starts_with("softmax")) {
      const int64_t dimension = toIValue(step.node->input(1))->toInt();
      if (dimension != -1 && dimension < 2) return "its softmax is not over the last dimension";
    }
  }
  const std::vector<Value*> read = values_read(attention);
  for (const Node* node = first; node != last; node = node->next()) {
    if (!is_own(attention, node) && may_write_to(node, read)) return "something is overwritten in between";
  }
  return std::nullopt;
}

// Whether the node swaps heads and rows: the dimensions before the last, which come first where none are before them.
bool swaps_heads_and_rows(const Node* node) {
  const auto is = [&](size_t input, double dimension) { return number(node->input(input)) == dimension; };
  if (node->kind() == c10::aten::transpose) {
    return (is(1, 1) && is(2, 2)) || (is(1, 2) && is(2, 1)) || (is(1, -3) && is(2, -2)) || (is(1, -2) && is(2, -3));
  }
  const auto order = node->kind() == c10::aten::permute ? toIValue(node->input(1)) : std::nullopt;
  if (!order) return false;
  std::vector<int64_t> dims = order->toIntVector();
  if (dims.size() < 4) return false;
  std::swap(dims.end()[-3], dims.end()[-2]);
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

// Whether all that reads the result swaps heads and rows and then lays it out anew, so that its layout is nobody's
// concern.
bool takes_any_layout(const Value* result) {
  const Node* swap = nullptr;
  for (const Use& use : result->uses()) {
    if (asks_for_sizes(use.user)) continue;
    if (swap) return false;
    swap = use.user;
  }
  if (!swap || !swaps_heads_and_rows(swap)) return false;
  int copies = 0;
  for (const Use& use : swap->output()->uses()) {
    if (asks_for_sizes(use.user)) continue;
    const std::string kind = kind_of(use.user);
    const auto format = kind == "aten::contiguous" ? toIValue(use.user->input(1)) : std::nullopt;
    if (kind != "aten::reshape" && !(format && format->toInt() == static_cast<int64_t>(at::MemoryFormat::Contiguous))) {
      return false;
    }
    ++copies;
  }
  return copies == 1;
}

// The same where what reads it moves its dimensions, and nobody behind that sees strides: heads of channels, which the kernel
// writes as a model that swaps channels and positions reads them.
bool is_moved_unseen(const StrideReaders& readers, const Value* result) {
  const auto& uses = result->uses();
  return !readers.see(result) && std::all_of(uses.begin(), uses.end(), [](const Use& use) {
    return asks_for_sizes(use.user) || has_trait(use.user, trait::moves_dimensions);
  });
}

// The same of a product with the weights turned, which the kernel writes as pixels lie channels-last.
bool takes_pixels(const StrideReaders& readers, const Value* result) {
  return !readers.see(result) && !readers.normalize(result);
}

void rewrite(const Attention& attention, const StrideReaders& readers) {
  const Node* first = attention.steps.front().node;
  Node* last = attention.steps.back().node;
  Graph* graph = last->owningGraph();
  const torch::jit::WithInsertPoint guard(last);
  const bool is_free = attention.turn ? takes_pixels(readers, last->output())
                                      : takes_any_layout(last->output()) || is_moved_unseen(readers, last->output());
  c10::List<std::string> names;
  std::vector<Value*> operands, numbers;
  const auto add_number = [&](const Number& number) {
    if (number.value && number.value->type()->kind() == c10::TypeKind::IntType) {
      numbers.push_back(graph->insert(c10::Symbol::fromQualString("aten::Float"), {number.value}));
    } else {
      numbers.push_back(number.value ? number.value : graph->insertConstant(number.constant));
    }
  };
  if (attention.scaled) {
    names.push_back(attention.scales_key ? "scale_key" : "scale_query");
    add_number(attention.factor);
  }
  for (const Step& step : attention.steps) {
    names.push_back(step.name);
    operands.insert(operands.end(), step.operands.begin(), step.operands.end());
    for (const Number& number : step.numbers) add_number(number);
  }
  if (Node* value = attention.value) {  // the op spreads what is summed over: the value by itself stays as it is
    const torch::jit::WithInsertPoint before_value(value);
    const int64_t summed = toIValue(value->input(3))->toIntVector()[0];
    value->replaceInput(1, value->input(0));
    value->replaceInput(3, graph->insertConstant(std::vector<int64_t>{summed, summed}));
  }
  if (attention.scaled_turned) attention.scaled_turned->replaceInput(0, attention.scaled->input(0));
  const size_t key = query_of(first) + 1;
  const auto unscaled = [&](size_t input) {
    const bool is_scaled = attention.scaled && first->input(input) == attention.scaled->output();
    return is_scaled ? attention.scaled->input(0) : first->input(input);
  };
  const auto list = [&](const c10::TypePtr& type, const std::vector<Value*>& values) {
    return graph->insertNode(graph->createList(type, values))->output();
  };
  Node* fused = insert_call(
      *graph, {"ipex::attention", ""},
      {unscaled(key - 1), unscaled(key), last->input(attention.turn ? 0 : 1), graph->insertConstant(names),
       list(c10::TensorType::get(), operands), list(c10::FloatType::get(), numbers), graph->insertConstant(!is_free)});
  replace(last, fused);
  if (attention.turn) attention.turn->destroy();
  if (attention.spread) attention.spread->destroy();
  for (auto step = attention.steps.rbegin() + 1; step != attention.steps.rend(); ++step) {
    step->node->destroy();
    if (step->expansion) step->expansion->destroy();
  }
  if (attention.scaled) attention.scaled->destroy();
}

bool run(Context& context) {
  bool changed = false;
  const StrideReaders readers(context.graph);
  for_each_node(context.graph->block(), [&](Node* node) {
    if (!op_of(node)) return;
    const std::string kind = kind_of(node);
    if (kind != "aten::matmul" && kind != "aten::bmm") return;
    const auto attention = Reader(node).read();
    if (!attention) return;
    if (const auto reason = reason_against(*attention)) return context.declined(node, *reason);
    context.became(node, "ipex::attention");
    rewrite(*attention, readers);
    changed = true;
  });
  return changed;
}

}  // namespace

Pass fuse_attention() {
  return {"fuse_attention", run, needs(lists_are_values, aten_names, no_dropout, one_name_per_op)};
}

}  // namespace ipex::passes
