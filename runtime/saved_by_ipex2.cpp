#include "saved_by_ipex2.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/custom_class.h>
#include <torch/library.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <unordered_set>

#include "ops/product/low_bit_format.h"

namespace ipex::runtime {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
using Ints = std::vector<int64_t>;
using MaybeTensor = std::optional<Tensor>;

// A class of IPEX's: what a file holds of it, and `plain`, the arguments that follow the input of the op that takes the
// place of IPEX's. Nothing is packed.
template <const char* name, class State, auto plain>
struct Context : torch::CustomClassHolder {
  explicit Context(State given) : state(std::move(given)) {}

  static void define() {
    torch::class_<Context>("ipex_prepack", name)
        .def("plain", [](const c10::intrusive_ptr<Context>& self) { return plain(self->state); })
        .def("get_data_handle", [](const c10::intrusive_ptr<Context>&) { return Tensor(); })
        .def_pickle([](const c10::intrusive_ptr<Context>& self) { return self->state; },
                    [](State state) { return c10::make_intrusive<Context>(std::move(state)); });
  }

  const State state;
};

// Not to be trained any more: constants of graphs have no gradients.
Tensor detached(const Tensor& tensor) { return tensor.detach(); }
MaybeTensor detached(const MaybeTensor& tensor) { return tensor ? MaybeTensor(tensor->detach()) : std::nullopt; }

// aten's kernels do not check what a damaged file may say.
void expect_moderate(const Ints& numbers) {
  constexpr int64_t most = 1024;
  TORCH_CHECK(std::all_of(numbers.begin(), numbers.end(), [](int64_t n) { return n <= most; }),
              "ipex: expected strides, padding and dilation up to ", most, " in a convolution that IPEX saved, got ",
              numbers, ". The file is damaged.");
}

// Weight, bias, stride, padding, dilation, groups; then what IPEX packs by.
using Convolution = std::tuple<Tensor, MaybeTensor, Ints, Ints, Ints, int64_t, bool, Ints>;
auto plain_convolution(const Convolution& state) {
  const auto& [weight, bias, stride, padding, dilation, groups, channels_last, input_sizes] = state;
  for (const Ints* numbers : {&stride, &padding, &dilation}) expect_moderate(*numbers);
  return std::tuple(detached(weight), detached(bias), stride, padding, dilation, groups);
}

// Weight, bias, stride, padding, output_padding, groups, dilation; then what IPEX packs by.
using Transposed = std::tuple<Tensor, MaybeTensor, Ints, Ints, Ints, int64_t, Ints, bool, Ints>;
auto plain_transposed(const Transposed& state) {
  const auto& [weight, bias, stride, padding, output_padding, groups, dilation, channels_last, input_sizes] = state;
  for (const Ints* numbers : {&stride, &padding, &output_padding, &dilation}) expect_moderate(*numbers);
  return std::tuple(detached(weight), detached(bias), stride, padding, output_padding, groups, dilation);
}

using Linear = std::tuple<Tensor, MaybeTensor, std::optional<int64_t>>;
auto plain_linear(const Linear& state) {
  return std::tuple(detached(std::get<0>(state)), detached(std::get<1>(state)));
}

// Codes, their format, sizes of the weight, scales, zero points, bias, order, batch, group size; then how IPEX multiplies.
using WeightOnly = std::tuple<Tensor, int64_t, Ints, Tensor, MaybeTensor, MaybeTensor, MaybeTensor,
                              std::optional<int64_t>, int64_t, int64_t, int64_t, bool>;
auto plain_weight_only(const WeightOnly& state) {
  enum Format { int8 = 1, int4 = 2, nf4 = 3 };
  const auto& [codes, format, sizes, scales, zeros, bias, order, batch, group, rows, activations, cached] = state;
  TORCH_CHECK(format == int8 || format == int4 || format == nf4, "weight-only codes of IPEX's format ", format);
  TORCH_CHECK(sizes.size() == 2 && scales.defined() && scales.dim() > 0 && !order, "a weight-only linear of sizes ",
              sizes);
  const auto by_groups = [&](const Tensor& table) { return table.dim() == 1 ? table.unsqueeze(1) : table; };
  // Numbers from 0 to 15 are ours of -8 to 7 with the highest bit turned.
  const auto offsets = [&]() -> MaybeTensor {
    if (format == nf4 || (format == int8 && !zeros)) return std::nullopt;
    const Tensor zero = zeros ? by_groups(zeros->to(at::kFloat)) : at::full_like(by_groups(scales), 8, at::kFloat);
    return format == int4 ? zero - 8 : zero;
  };
  const MaybeTensor values = format == nf4 ? MaybeTensor(low_bit_format("nf4")->table()) : std::nullopt;
  return std::tuple(format == int4 ? codes.bitwise_xor(0x88) : codes, by_groups(scales.to(at::kFloat)), offsets(),
                    MaybeTensor(), detached(bias), sizes[1], group > 0 ? group : sizes[1], int64_t{24}, values);
}

// An op of IPEX's, and what takes its place.
struct Row {
  const char* schema;
  // For "%d" stands how many strides the context has.
  const char* ours;
  // So many arguments come first; behind them follow those of the context, or the others by their names.
  size_t first;
};
constexpr Row rows[] = {
    {"convolution_forward(Tensor input, Tensor weight, Tensor? bias, Tensor W_prepack, int[]? kernel_size, "
     "int[]? padding, int[]? stride, int[]? dilation, bool? weight_channels_last) -> Tensor",
     "aten::conv%d", 1},
    {"conv_transpose(Tensor input, Tensor weight, Tensor? bias_opt, Tensor W_prepack, int[]? weight_size, "
     "int[]? padding, int[]? output_padding, int[]? stride, int[]? dilation, int? groups, bool? weight_channels_last) "
     "-> Tensor",
     "aten::conv_transpose%d", 1},
    {"ipex_linear(Tensor input, Tensor weight, Tensor? bias, Tensor W_prepack, int? out_features) -> Tensor",
     "aten::linear", 1},
    {"ipex_MKLSGEMM(Tensor input, Tensor weight, Tensor? bias, Tensor W_prepack, int? out_features) -> Tensor",
     "aten::linear", 1},
    {"ipex_woq_linear(Tensor input, Tensor W_prepack) -> Tensor", "ipex::weight_only_linear", 1},
    {"ipex_lstm(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout_p, "
     "bool train, bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
     "aten::lstm", 9},
    {"embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool sparse, bool include_last_offset) -> Tensor",
     "aten::embedding_bag", 3},
};

const Row* row_of(std::string_view op) {
  const auto* found = std::find_if(std::begin(rows), std::end(rows), [&](const Row& row) {
    const std::string_view schema = row.schema;
    return schema.substr(0, schema.find('(')) == op;
  });
  return found == std::end(rows) ? nullptr : found;
}

constexpr char convolution[] = "ConvolutionOpContext", transposed[] = "ConvTransposeOpContext",
               linear[] = "LinearOpContext", mkl_linear[] = "MKLOpContext", weight_only[] = "WoqLinearOpContext";

// False where IPEX was first.
bool know_ipex2() {
  static const bool ours = [] {
    if (c10::Dispatcher::singleton().findOp({"torch_ipex::ipex_linear", ""})) return false;
    Context<convolution, Convolution, plain_convolution>::define();
    Context<transposed, Transposed, plain_transposed>::define();
    Context<linear, Linear, plain_linear>::define();
    Context<mkl_linear, Linear, plain_linear>::define();
    Context<weight_only, WeightOnly, plain_weight_only>::define();
    static torch::Library library(torch::Library::FRAGMENT, "torch_ipex", std::nullopt, __FILE__, __LINE__);
    for (const Row& row : rows) library.def(row.schema);
    return true;
  }();
  return ours;
}

bool is_context(const c10::TypePtr& type) {
  const auto found = type->cast<c10::ClassType>();
  return found && found->name() && found->name()->prefix() == "__torch__.torch.classes.ipex_prepack";
}

c10::TypePtr plain_type(const c10::TypePtr& context) {
  return context->expectRef<c10::ClassType>().getMethod("plain").getSchema().returns().at(0).type();
}

IValue plain_value(const IValue& context) {
  return context.type()->expectRef<c10::ClassType>().getMethod("plain")({context});
}

// What a value is in this module. The attributes are plain already.
std::optional<IValue> known_value(Value* value, const torch::jit::Module& self) {
  if (value == value->owningGraph()->inputs()[0]) return self._ivalue();
  if (value->node()->kind() == c10::prim::Constant) return torch::jit::toIValue(value);
  if (value->node()->kind() != c10::prim::GetAttr) return std::nullopt;
  const auto owner = known_value(value->node()->input(), self);
  if (!owner || !owner->isObject()) return std::nullopt;
  return owner->toObjectRef().getAttr(value->node()->s(c10::attr::name));
}

bool gives_handle(const Node* node) {
  return node->kind() == c10::prim::CallMethod && node->s(c10::attr::name) == "get_data_handle";
}

// The plain tuple's elements, as values of the graph.
std::vector<Value*> elements(Value* context, const IValue& plain) {
  torch::jit::Graph& graph = *context->owningGraph();
  std::vector<Value*> found;
  if (context->node()->kind() == c10::prim::Constant) {
    for (const IValue& element : plain.toTupleRef().elements()) found.push_back(graph.insertConstant(element));
  } else {
    if (is_context(context->type())) context->setType(plain_type(context->type()));
    const auto outputs = graph.insertNode(graph.createTupleUnpack(context))->outputs();
    found.assign(outputs.begin(), outputs.end());
  }
  return found;
}

void replace(Node* node, const torch::jit::Module& self) {
  torch::jit::Graph& graph = *node->owningGraph();
  const torch::jit::WithInsertPoint here(node);
  const Row* row = row_of(node->kind().toUnqualString());
  TORCH_CHECK(row, "the op ", node->kind().toQualString());
  std::string ours = row->ours;
  const auto inputs = node->inputs();
  std::vector<torch::jit::NamedValue> arguments(inputs.begin(), inputs.begin() + row->first), by_name;
  const auto handle =
      std::find_if(inputs.begin(), inputs.end(), [](const Value* input) { return gives_handle(input->node()); });
  if (handle != inputs.end()) {
    Value* context = (*handle)->node()->input(0);
    auto plain = known_value(context, self);
    TORCH_CHECK(plain, "a context that the graph computes");
    if (plain->isObject()) plain = plain_value(*plain);
    for (Value* element : elements(context, *plain)) arguments.emplace_back(element);
    if (const size_t digit = ours.find("%d"); digit != std::string::npos) {
      const auto& known_elements = plain->toTupleRef().elements();
      TORCH_CHECK(known_elements.size() > 2 && known_elements[2].isIntList(),
                  "a convolution whose context is another's");
      ours.replace(digit, 2, std::to_string(known_elements[2].toIntVector().size()) + "d");
    }
  } else {
    const auto& names = node->schema().arguments();
    for (size_t i = row->first; i < inputs.size(); ++i) by_name.emplace_back(names[i].name(), inputs[i]);
  }
  Value* result = graph.insert(c10::Symbol::fromQualString(ours), arguments, by_name, node->sourceRange());
  if (const auto tuple = result->type()->cast<c10::TupleType>()) {
    const auto outputs = graph.insertNode(graph.createTupleUnpack(result))->outputs();
    for (size_t i = 0; i < node->outputs().size(); ++i) node->output(i)->replaceAllUsesWith(outputs[i]);
  } else {
    node->output()->replaceAllUsesWith(result);
  }
  node->destroy();
}

void make_plain(Block& block, const torch::jit::Module& self) {
  for (auto it = block.nodes().begin(); it != block.nodes().end();) {
    Node* node = *it++;
    for (Block* inner : node->blocks()) make_plain(*inner, self);
    if (node->kind().is_prim() || node->kind().is_aten()) continue;
    if (std::string_view(node->kind().ns().toUnqualString()) == "torch_ipex") replace(node, self);
  }
}

// Then nobody reads a handle, or somebody does as IPEX doesn't.
void drop_handles(Block& block) {
  for (auto it = block.nodes().begin(); it != block.nodes().end();) {
    Node* node = *it++;
    for (Block* inner : node->blocks()) drop_handles(*inner);
    if (!gives_handle(node)) continue;
    TORCH_CHECK(!node->output()->hasUses(), "a context of IPEX's that is read in an unknown way");
    node->destroy();
  }
}

}  // namespace

bool prepare_for_ipex2(caffe2::serialize::PyTorchStreamReader& file) {
  constexpr std::string_view op = "ops.torch_ipex.", context = "__torch__.torch.classes.ipex_prepack.";
  bool is_saved_by_it = false;
  for (const std::string& record : file.getAllRecords()) {
    if (record.rfind("code/", 0) != 0 || std::filesystem::path(record).extension() != ".py") continue;
    const auto [bytes, size] = file.getRecord(record);
    const std::string_view code(static_cast<const char*>(bytes.get()), size);
    is_saved_by_it = is_saved_by_it || code.find(context) != std::string_view::npos;
    for (size_t at = code.find(op); at != std::string_view::npos; at = code.find(op, at)) {
      at += op.size();
      const std::string_view name = code.substr(at, code.find('(', at) - at);
      TORCH_CHECK(row_of(name), "ipex::load: expected an op of IPEX 2.x that is known here, got torch_ipex::", name,
                  ". Save the model as it is before IPEX optimises it.");
      is_saved_by_it = true;
    }
  }
  return is_saved_by_it && know_ipex2();
}

void make_plain(const torch::jit::Module& module) {
  std::unordered_set<c10::ClassType*> seen;
  std::vector<torch::jit::Module> kinds;  // a module of each type
  for (const torch::jit::Module& part : module.modules()) {
    const auto type = part.type();
    if (seen.insert(type.get()).second) kinds.push_back(part);
    const auto& slots = part._ivalue()->slots();
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i].isObject() && is_context(slots[i].type())) part._ivalue()->setSlot(i, plain_value(slots[i]));
    }
  }
  for (const torch::jit::Module& part : kinds) {
    const auto type = part.type();
    for (size_t i = 0; i < type->numAttributes(); ++i) {
      if (is_context(type->getAttribute(i))) {
        type->unsafeChangeAttributeType(type->getAttributeName(i), plain_type(type->getAttribute(i)));
      }
    }
  }
  for (const torch::jit::Module& part : kinds) {
    for (const auto& method : part.get_methods()) {
      const auto graph = torch::jit::toGraphFunction(method.function()).graph();
      make_plain(*graph->block(), part);
      drop_handles(*graph->block());
      torch::jit::EliminateDeadCode(graph);
    }
  }
}

}  // namespace ipex::runtime
