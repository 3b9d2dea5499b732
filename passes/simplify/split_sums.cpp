// split_sums: a sum over two images, halves of one or stacked, is their addition.
//
//   before   %p = aten::reshape(%x, [%n, 2, %c, %h, %w])    %y = aten::sum(%p, [1])
//            %m = aten::mul(%p, %gates)                     %z = aten::sum(%m, [1])
//   after    %l = aten::split(%x, %c, 1)    %a, %b = prim::ListUnpack(%l)
//            %y = aten::add(%a, %b)
//            %z = aten::add(aten::mul(%a, aten::select(%gates, 1, 0)), aten::mul(%b, aten::select(%gates, 1, 1)))
//
// and with %p = aten::stack([%a, %b], 1) the same, without a copy. So in ResNeSt and in selective kernels, whose attention
// weighs the two. Five dimensions have no channels-last layout for convolutions around them; the two images have, and what is
// done with them is one pass over memory. (An image of one pixel is spread over the other, where aten refuses to stack them.)
// Only for what is known to be a 2-d convolution's. Declines where somebody sees the strides, as aten's sums are contiguous,
// and where something is overwritten.
#include <algorithm>

#include "ir/aliasing.h"
#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/size_list.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

constexpr int64_t parts = 2, channels = 1;

// Whether it is a 2-d convolution's, batch_norm and activations after it included.
bool is_image(const Value* x) {
  static const OpName convolution("aten::conv2d"), batch_norm("aten::batch_norm");
  const Node* node = x->node();
  while (has_trait(node, trait::elementwise) || batch_norm.is_of(node)) node = node->input(0)->node();
  return convolution.is_of(node);
}

// The dimensions that the value is reshaped to where it has five and the second of them is known to be the halves.
std::optional<std::vector<Value*>> halves(const Value* value) {
  if (!is_reshape(value->node())) return std::nullopt;
  auto sizes = elements_of(value->node()->input(1));
  const bool are_halves = sizes && sizes->size() == 5 && constant_integer((*sizes)[channels]) == parts;
  return are_halves ? sizes : std::nullopt;
}

// The images that are stacked. Empty for others.
std::vector<Value*> stacked(Value* value) {
  static const OpName stack("aten::stack");
  Node* node = value->node();
  if (!stack.is_of(node) || constant_integer(node->input(1)) != channels) return {};
  const auto images = own_elements_of(node->input(0));
  const bool are_two = images && images->size() == parts && std::all_of(images->begin(), images->end(), is_image);
  return are_two ? *images : std::vector<Value*>();
}

struct Images {
  std::vector<Value*> all;         // one in halves, or two; none
  Value* width_of_half = nullptr;  // in channels
};

// What `value` is the halves of.
Images image_in_halves(const Value* value) {
  const auto sizes = halves(value);
  if (!sizes) return {};
  Value* x = value->node()->input(0);
  const bool keeps_others = is_size_of((*sizes)[0], x, 0) && is_size_of((*sizes)[3], x, 2) &&
                            is_size_of((*sizes)[4], x, 3) && is_size((*sizes)[2]);
  return keeps_others && is_image(x) ? Images{{x}, (*sizes)[2]} : Images();
}

bool sums_parts_alone(const Node* sum) {
  return is_list_of(sum->namedInput("dim"), {channels}) && is_false(sum->namedInput("keepdim")) &&
         sum->namedInput("dtype")->mustBeNone();
}

struct Sum {
  Images images;
  Value* gates = nullptr;  // null: none
};

bool are_gates(const Value* value) {
  static const OpName softmax("aten::softmax.int");
  return halves(softmax.is_of(value->node()) ? value->node()->input(0) : value).has_value();
}

Images images_in(Value* summed) {
  Images found = image_in_halves(summed);
  return found.all.empty() ? Images{stacked(summed)} : found;
}

std::optional<Sum> read(Node* node) {
  static const OpName mul("aten::mul.Tensor");
  if (!sums_parts_alone(node)) return std::nullopt;
  Value* summed = node->input(0);
  if (auto images = images_in(summed); !images.all.empty()) return Sum{std::move(images), nullptr};
  Node* product = summed->node();
  if (!mul.is_of(product) || summed->uses().size() != 1) return std::nullopt;
  for (const size_t i : {0, 1}) {
    auto images = images_in(product->input(i));
    if (!images.all.empty() && are_gates(product->input(1 - i))) return Sum{std::move(images), product->input(1 - i)};
  }
  return std::nullopt;
}

// The sum of the two, each times its gates.
Value* added(Graph& graph, const Sum& sum) {
  std::vector<Value*> terms = sum.images.all;
  if (sum.images.width_of_half) {
    Value* list = graph.insert(c10::aten::split, {terms[0], sum.images.width_of_half, channels});
    terms = graph.insertNode(graph.createListUnpack(list, parts))->outputs().vec();
  }
  for (int64_t i = 0; sum.gates && i < parts; ++i) {
    Value*& term = terms[static_cast<size_t>(i)];
    term = graph.insert(c10::aten::mul, {term, graph.insert(c10::aten::select, {sum.gates, channels, i})});
  }
  return graph.insert(c10::aten::add, {terms[0], terms[1]}, {torch::jit::NamedValue("alpha", 1)});
}

bool run(Context& context) {
  std::vector<std::pair<Node*, Sum>> found;
  for_each(context.graph, "aten::sum.dim_IntList", [&](Node* node) {
    if (const auto sum = read(node)) found.emplace_back(node, *sum);
  });
  if (found.empty()) return false;
  const OverwrittenValues overwritten(context.graph);
  const StrideReaders readers(context.graph);
  bool changed = false;
  for (const auto& [node, sum] : found) {
    if (readers.see(node->output())) {
      context.declined(node, "the strides of a result depend on it");
      continue;
    }
    const auto& images = sum.images.all;
    if (std::any_of(images.begin(), images.end(), [&](const Value* image) { return overwritten.contain(image); }) ||
        (sum.gates && overwritten.contain(sum.gates))) {
      context.declined(node, "something is overwritten");
      continue;
    }
    context.became(node, "an addition");
    const torch::jit::WithInsertPoint guard(node);
    replace(node, added(*context.graph, sum)->node());
    changed = true;
  }
  return changed;
}

}  // namespace

Pass split_sums() { return {"split_sums", run, needs(lists_are_values, aten_names, integer_sizes, one_name_per_op)}; }

}  // namespace ipex::passes
