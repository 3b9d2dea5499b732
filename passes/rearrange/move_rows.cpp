// move_rows: windows are cut, shifted and put together by the norms beside them.
//
//   before   %y = aten::layer_norm(%x, ..)                    %r = aten::roll(%y, ..)
//            %a = aten::view(%r, %windows)                    %b = aten::permute(%a, ..)    %w = aten::reshape(%b, %tokens)
//   after    %w = ipex::layer_norm(%x, .., %moves, %numbers, %moves_result=True)
//
//   before   %a = aten::view(%attended, %windows)             %b = aten::permute(%a, ..)    %c = aten::reshape(%b, %image)
//            %r = aten::roll(%c, ..)
//            %y, %sum = ipex::layer_norm.of_sum(%x, %r, ..)
//   after    %y, %sum = ipex::layer_norm.of_sum(%x, %attended, .., %moves, %numbers)
//
// What keeps the last dimension whole moves rows: reshapes, permutations, rolls, borders of zeros and pieces. A norm goes row by row, so
// each row is written where it goes, or read where it lies. Rolls that no norm stands beside become one copy with the steps around them,
// ipex::move_rows. %moves is an object that has the map of rows for the shapes seen last.
// Whether rows stay whole is for the op to see at each call; here only what can't be is left out. Who asks for sizes of what is gone asks for
// those of what it was made of.
// Declines where somebody else reads a step, sees the strides, or overwrites the memory, and where the sum is read before the rows have moved.
#include <algorithm>
#include <set>

#include "anchor/anchor.h"
#include "ir/aliasing.h"
#include "ir/calls.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/ranks.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"
#include "rearrange/rearranging_step.h"
#include "rearrange/size_source.h"

namespace ipex::passes {
namespace {

using Steps = std::vector<RearrangingStep>;

const OpName& layer_norm() {
  static const OpName name("aten::layer_norm");
  return name;
}

const OpName& norm_of_sum() {
  static const OpName name("ipex::layer_norm.of_sum");
  return name;
}

// How many elements the norm's last dimension has, where it is all that is normalised.
std::optional<int64_t> width_of(Value* normalized_shape) {
  const auto shape = integers_of(normalized_shape);
  return shape && shape->size() == 1 ? std::optional(shape->front()) : std::nullopt;
}

// The last number of a reshape, which may be known when it runs only.
bool may_end_in(Value* sizes, std::optional<int64_t> width) {
  std::optional<int64_t> last;
  if (const auto known = integers_of(sizes)) {
    if (known->empty()) return false;
    last = known->back();
  } else if (const auto values = elements_of(sizes)) {
    last = constant_integer(values->back());
  }
  return !last || (*last > 0 && *last == width.value_or(*last));
}

// Whether a transpose of these dimensions leaves the last one where it is. Two dimensions in front leave a third, as a rule.
bool spares_last(std::optional<int64_t> a, std::optional<int64_t> b, const Node* transpose) {
  if (!a || !b) return false;
  const auto [least, most] = std::minmax(*a, *b);
  if (most < 0) return most < -1;
  constexpr int furthest = 8;
  return least >= 0 && most < Ranks(furthest).of(transpose->input(0)).exact().value_or(3) - 1;
}

bool may_keep_rows(const RearrangingStep& step, std::optional<int64_t> width) {
  const auto argument = [&](size_t i) { return step.arguments[i].value; };
  if (step.name == "reshape") return may_end_in(argument(0), width);
  if (step.name == "permute") {
    const auto order = integers_of(argument(0));
    return order && !order->empty() && (order->back() == -1 || order->back() == std::ssize(*order) - 1);
  }
  if (step.name == "transpose")
    return spares_last(constant_integer(argument(0)), constant_integer(argument(1)), step.node);
  if (step.name == "flatten") return constant_integer(argument(1)) != -1;
  if (step.name == "pad") {
    const Value* pads = argument(0);
    const auto known = integers_of(pads);
    if (known) return known->size() >= 2 && (*known)[0] == 0 && (*known)[1] == 0;
    const auto values = elements_of(pads);
    return values && values->size() >= 2 && constant_integer(values->at(0)) == 0 &&
           constant_integer(values->at(1)) == 0;
  }
  if (step.name == "slice") return constant_integer(argument(0)).has_value();
  return step.name == "roll" || step.name == "contiguous" || step.name == "unsqueeze";
}

bool moves(const RearrangingStep& step) {
  static const std::string movers[] = {"permute", "transpose", "roll", "pad"};
  return std::find(std::begin(movers), std::end(movers), step.name) != std::end(movers);
}

bool pads(const RearrangingStep& step) { return step.name == "pad"; }

// The one who reads the value, others that ask for its sizes left out. Null where there are several, or in another block.
Node* reader_of(const Value* value) {
  Node* reader = nullptr;
  for (const Use& use : value->uses()) {
    if (asks_for_known_size(use)) continue;
    if (reader || use.user->owningBlock() != value->node()->owningBlock()) return nullptr;
    reader = use.user;
  }
  return reader;
}

// The steps that begin with what `value` alone is read by.
Steps steps_after(const Value* value, std::optional<int64_t> width) {
  Steps steps;
  for (Node* node = reader_of(value); node; node = reader_of(node->output())) {
    const auto step = read_step_of_rows(node);
    if (!step || node->input(0) != value || !may_keep_rows(*step, width)) break;
    if (pads(*step) && std::any_of(steps.begin(), steps.end(), pads)) break;
    steps.push_back(*step);
    value = node->output();
  }
  return steps;
}

// The steps that end with `value`, which `reader` alone reads.
Steps steps_before(const Value* value, const Node* reader, std::optional<int64_t> width) {
  Steps steps;
  while (value->node()->owningBlock() == reader->owningBlock() && reader_of(value) == reader) {
    Node* node = const_cast<Node*>(value->node());
    const auto step = read_step_of_rows(node);
    if (!step || !may_keep_rows(*step, width)) break;
    if (pads(*step) && std::any_of(steps.begin(), steps.end(), pads)) break;
    steps.insert(steps.begin(), *step);
    reader = node;
    value = node->input(0);
  }
  return steps;
}

bool move_anything(const Steps& steps) { return std::any_of(steps.begin(), steps.end(), moves); }

class Moving {
 public:
  explicit Moving(Context& context) : context_(context), overwritten_(context.graph), readers_(context.graph) {}

  bool run() {
    std::vector<Node*> norms, sums, rolls;
    for_each_node(context_.graph->block(), [&](Node* node) {
      static const OpName roll("aten::roll");
      if (layer_norm().is_of(node)) norms.push_back(node);
      if (norm_of_sum().is_of(node)) sums.push_back(node);
      if (roll.is_of(node)) rolls.push_back(node);
    });
    for (Node*& norm : norms) {
      if (write_moved(norm)) norm = nullptr;
    }
    for (Node*& sum : sums) {
      if (write_moved(sum)) sum = nullptr;
    }
    for (Node* sum : sums) {
      if (sum) read_moved(sum);
    }
    for (Node* norm : norms) {
      if (norm) norm_before_moving(norm);
    }
    for (Node* roll : rolls) {
      if (!gone_.count(roll)) join_with_roll(roll);
    }
    return changed_;
  }

 private:
  std::optional<std::string> reason_against(const Steps& steps) const {
    if (readers_.see(steps.back().node->output())) return "stays: the strides of a result depend on it";
    const auto is_written = [&](const RearrangingStep& step) {
      return overwritten_.contain(step.node->output()) || overwritten_.contain(step.node->input(0));
    };
    return std::any_of(steps.begin(), steps.end(), is_written)
               ? std::optional<std::string>("stays: something is overwritten")
               : std::nullopt;
  }

  bool reads_what_is_written(const Node* node) const {
    return std::any_of(node->inputs().begin(), node->inputs().end(),
                       [&](const Value* input) { return overwritten_.contain(input); });
  }

  bool declines(const Node* node, const Steps& steps) {
    auto reason = reason_against(steps);
    if (!reason && reads_what_is_written(node)) reason = "stays: something is overwritten";
    if (reason) context_.declined(node, *reason);
    return reason.has_value();
  }

  // A norm of which all that is read is moved.
  bool write_moved(Node* norm) {
    const bool is_sum = norm_of_sum().is_of(norm);
    const Steps steps = steps_after(norm->output(0), width_of(norm->input(is_sum ? 2 : 1)));
    if (!move_anything(steps) || declines(norm, steps)) return false;
    Node* end = steps.back().node;
    if (is_sum) {
      const auto& uses = norm->output(1)->uses();
      const auto is_later = [&](const Use& use) { return use.user->isAfter(end); };
      if (!std::all_of(uses.begin(), uses.end(), is_later)) {
        context_.declined(norm, "stays: its sum is read before its rows have moved");
        return false;
      }
    }
    context_.applied(norm, "writes its rows where they go");
    ask_elsewhere(norm);
    for (const RearrangingStep& step : Steps(steps.begin(), steps.end() - 1)) ask_elsewhere(step.node);
    Node* made = insert_norm(end, norm, norm->inputs(), steps);
    set_argument(made, "moves_result", true);
    if (is_sum) norm->output(1)->replaceAllUsesWith(made->output(1));
    take_place(steps, made);
    norm->destroy();
    return true;
  }

  // A sum one of whose operands has been moved before.
  bool read_moved(Node* sum) {
    const auto width = width_of(sum->input(2));
    const bool is_in_place = !is_false(sum->input(7));
    for (const size_t operand : {1, 0}) {
      const Steps steps = steps_before(sum->input(operand), sum, width);
      const bool can_be = operand == 1 || !is_in_place;
      if (!can_be || !move_anything(steps) || std::any_of(steps.begin(), steps.end(), pads)) continue;
      if (declines(sum, steps)) continue;
      context_.applied(sum, "reads rows where they lie");
      for (const RearrangingStep& step : steps) ask_elsewhere(step.node);
      std::vector<Value*> inputs = sum->inputs().vec();
      inputs[0] = sum->input(1 - operand);
      inputs[1] = steps.front().node->input(0);
      replace(sum, insert_norm(sum, sum, inputs, steps));
      destroy(steps);
      return true;
    }
    return false;
  }

  // A norm of what has been moved before: rows may as well be normalised first, where none are new.
  bool norm_before_moving(Node* norm) {
    const Steps steps = steps_before(norm->input(0), norm, width_of(norm->input(1)));
    if (!move_anything(steps) || std::any_of(steps.begin(), steps.end(), pads)) return false;
    if (declines(norm, steps)) return false;
    context_.applied(norm, "normalises rows before they move");
    for (const RearrangingStep& step : steps) ask_elsewhere(step.node);
    std::vector<Value*> inputs = norm->inputs().vec();
    inputs[0] = steps.front().node->input(0);
    replace(norm, insert_norm(norm, norm, inputs, steps));
    destroy(steps);
    return true;
  }

  bool join_with_roll(Node* roll) {
    Steps steps = steps_before(roll->input(0), roll, std::nullopt);
    const auto own = read_step_of_rows(roll);
    if (!own) return false;
    steps.push_back(*own);
    for (RearrangingStep& step : steps_after(roll->output(), std::nullopt)) {
      const bool is_second = pads(step) && std::any_of(steps.begin(), steps.end(), pads);
      if (is_second) break;
      steps.push_back(step);
    }
    if (steps.size() < 2 || declines(roll, steps)) return false;
    context_.applied(roll, "is one copy with the steps around it");
    for (const RearrangingStep& step : Steps(steps.begin(), steps.end() - 1)) ask_elsewhere(step.node);
    Node* end = steps.back().node;
    Graph& graph = *end->owningGraph();
    const torch::jit::WithInsertPoint guard(end);
    const auto [moves, numbers] = insert_moves(graph, steps);
    static const Symbol move = Symbol::fromQualString("ipex::move_rows");
    take_place(steps, graph.insertNode(graph.create(move, {steps.front().node->input(0), moves, numbers})));
    return true;
  }

  // The norm as an op of ours that moves rows, before `place`.
  Node* insert_norm(Node* place, const Node* norm, at::ArrayRef<Value*> inputs, const Steps& steps) {
    Graph& graph = *place->owningGraph();
    const torch::jit::WithInsertPoint guard(place);
    const auto [moves, numbers] = insert_moves(graph, steps);
    const bool is_sum = norm_of_sum().is_of(norm);
    Node* made = is_sum ? graph.insertNode(graph.create(norm->kind(), inputs, 2))
                        : insert_call(graph, {"ipex::layer_norm", ""}, inputs.slice(0, 5));
    set_argument(made, "moves", moves);
    set_argument(made, "numbers", numbers);
    return made;
  }

  // What keeps the maps of rows, and the numbers of the steps.
  std::pair<Value*, Value*> insert_moves(Graph& graph, const Steps& steps) {
    const StepsAsData data = as_data(steps);
    Node* prepack =
        graph.insertNode(graph.create(Symbol::fromQualString("ipex::row_moves_prepack"), {data.names, data.counts}));
    prepack->output()->setType(context_of(prepack));
    changed_ = true;
    return {prepack->output(), data.numbers};
  }

  static c10::TypePtr context_of(const Node* prepack) { return prepack->schema().returns()[0].type(); }

  void take_place(const Steps& steps, Node* made) {
    Node* end = steps.back().node;
    made->output(0)->copyMetadata(end->output());
    made->setSourceRange(end->sourceRange());
    made->setScope(end->scope());
    end->output()->replaceAllUsesWith(made->output(0));
    destroy(steps);
  }

  void destroy(const Steps& steps) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      gone_.insert(step->node);
      step->node->destroy();
    }
  }

  Context& context_;
  const OverwrittenValues overwritten_;
  const StrideReaders readers_;
  std::set<const Node*> gone_;
  bool changed_ = false;
};

bool run(Context& context) { return !writes_to_shared_memory(context.graph) && Moving(context).run(); }

}  // namespace

Pass move_rows() { return {"move_rows", run, needs(lists_are_values, aten_names, plain_views) + breaks(plain_views)}; }

}  // namespace ipex::passes
