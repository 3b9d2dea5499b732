// rewrite_einsum: an einsum that is a product of two batches of matrices is a matmul, however its dimensions lie.
//
//   before   %y = aten::einsum("bqhd,bkhd->bhqk", [%a, %b])
//   after    %p = ipex::einsum_operand(%a, %b, ..)    as bhqd, a view
//            %q = ipex::einsum_operand(%b, %a, ..)    as bhdk
//            %y = aten::matmul(%p, %q)
//   before   %y = aten::einsum("bhqk,bkhd->bqhd", [%a, %b])
//   after    .. and %y = aten::transpose(%m, 1, 2)
//   before   %y = aten::einsum("bhwc,hkc->bhwk", [%a, %b])
//   after    .. of %b as hck, which serves for each b. If another einsum reads %a too, both read %a.contiguous()
//
// So the products of an attention are known as such, and others take post-ops. Dimensions that dots stand for come first.
// A factor that was multiplied by a number is multiplied as a view, so that the number is found before the product.
// The factor that a table of relative positions is multiplied by has dimensions of its own on both sides of the batch. It is taken
// where its dimensions stand as matmul wants them: aten copies it.
// Declines when another factor has not one dimension of its own and one that is summed over beside those of the batch, and when
// somebody sees the strides, which are aten's own where a dimension has one element.
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/constants.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/motion.h"
#include "ir/stride_readers.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

struct Product {
  std::array<Value*, 2> factors;
  std::array<std::string, 2> letters;  // of their dimensions, as they are
  std::array<std::string, 2> wanted;   // as matmul takes them
  std::string given, result;           // of what matmul gives, and of what the einsum does
  char summed;
  std::array<bool, 2> has_more;  // whether dots stand before the letters
  bool serves_all;               // whether the second factor has fewer dimensions, and serves for all others
};

bool is_in(const std::string& letters, char c) { return letters.find(c) != std::string::npos; }

bool differ(const std::string& letters) {
  return std::all_of(letters.begin(), letters.end(),
                     [&](char c) { return c != '.' && std::count(letters.begin(), letters.end(), c) == 1; });
}

bool drop_dots(std::string& letters) {
  const bool has_dots = letters.starts_with("...");
  if (has_dots) letters.erase(0, 3);
  return has_dots;
}

std::optional<Product> read(const Node* einsum) {
  const auto equation = toIValue(einsum->input(0));
  const auto factors = elements_of(einsum->input(1));
  if (!equation || !factors || factors->size() != 2) return std::nullopt;
  std::string text = equation->toStringRef();
  std::erase(text, ' ');
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) return std::nullopt;
  Product product{.factors = {factors->at(0), factors->at(1)},
                  .letters = {text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1)},
                  .wanted = {},
                  .given = {},
                  .result = text.substr(arrow + 2),
                  .summed = 0,
                  .has_more = {},
                  .serves_all = false};
  auto& [first, second] = product.letters;
  product.has_more = {drop_dots(first), drop_dots(second)};
  const bool result_has_more = drop_dots(product.result);
  if (!differ(first) || !differ(second) || !differ(product.result) ||
      result_has_more != (product.has_more[0] || product.has_more[1])) {
    return std::nullopt;
  }
  std::string batch, own_of_first, own_of_second, summed;
  for (const char c : product.result) {
    (is_in(first, c) && is_in(second, c) ? batch : is_in(first, c) ? own_of_first : own_of_second) += c;
  }
  for (const char c : first) {
    if (!is_in(product.result, c)) summed += c;
  }
  const bool is_last = own_of_first.size() == 1 && own_of_second.size() == 1 &&
                       product.result.find(own_of_second) < product.result.find(own_of_first);
  if (own_of_second.size() > 1 || is_last) {
    std::swap(product.factors[0], product.factors[1]);
    std::swap(first, second);
    std::swap(product.has_more[0], product.has_more[1]);
    std::swap(own_of_first, own_of_second);
  }
  const bool fits = !own_of_first.empty() && own_of_second.size() == 1 && summed.size() == 1 &&
                    first.size() == batch.size() + own_of_first.size() + 1 && second.size() == batch.size() + 2 &&
                    is_in(second, summed[0]) && is_in(first, summed[0]);
  if (!fits) return std::nullopt;
  const std::string row = own_of_first.substr(own_of_first.size() - 1);
  const std::string before = own_of_first.substr(0, own_of_first.size() - 1) + batch;
  product.summed = summed[0];
  product.wanted = {before + row + summed, batch + summed + own_of_second};
  product.given = before + row + own_of_second;
  const bool has_dots = product.has_more[0] || product.has_more[1];
  product.serves_all = own_of_first.size() > 1;
  if (product.serves_all && (has_dots || batch.empty() || product.wanted[0] != first)) return std::nullopt;
  return product;
}

int64_t from_end(const std::string& letters, char c) {
  return static_cast<int64_t>(letters.find(c)) - static_cast<int64_t>(letters.size());
}

// How the dimensions of what matmul gives become those of the einsum: two are swapped, or all permuted, or neither. Unknown where dots
// stand for some that would have to be counted.
struct Order {
  std::vector<int64_t> swapped, permuted;
  bool is_known = true;
};

Order order_of_result(const Product& product) {
  Order order;
  std::vector<int64_t> moved;
  for (size_t i = 0; i < product.given.size(); ++i) {
    order.permuted.push_back(static_cast<int64_t>(product.given.find(product.result[i])));
    if (product.given[i] != product.result[i]) moved.push_back(static_cast<int64_t>(i));
  }
  const bool has_more = product.has_more[0] || product.has_more[1];
  const auto offset = has_more ? static_cast<int64_t>(product.given.size()) : 0;
  if (moved.size() == 2) order.swapped = {moved[0] - offset, moved[1] - offset};
  order.is_known = moved.size() <= 2 || !has_more;
  if (moved.size() <= 2) order.permuted.clear();
  return order;
}

// The number that a factor is multiplied by for this einsum alone. Null where there is none.
Value* number_of(Value* factor, const Node* einsum) {
  static const OpName times("aten::mul");
  const Node* node = factor->node();
  const bool is_scaled = times.is_of(node) && factor->uses().size() == 1 && has_tensor_type(node->input(0)) &&
                         number(node->input(1)) && can_wait(node, einsum);
  return is_scaled ? node->input(1) : nullptr;
}

// Other einsums further on that read the factor, and whose strides nobody sees: the lists that they read it from.
std::vector<Use> later_lists(Value* factor, Node* einsum, const StrideReaders& readers) {
  std::vector<Use> found;
  for (const Use& use : factor->uses()) {
    if (!makes_list(use.user) || use.user->output()->uses().size() != 1) continue;
    Node* other = use.user->output()->uses()[0].user;
    if (other->kind() == einsum->kind() && other->owningBlock() == einsum->owningBlock() && other->isAfter(einsum) &&
        !readers.see(other->output()) && can_wait(einsum, other)) {
      found.push_back(use);
    }
  }
  return found;
}

// aten would copy the factor for each of them.
Value* copied_for_all(Value* factor, Node* einsum, const StrideReaders& readers) {
  const std::vector<Use> others = later_lists(factor, einsum, readers);
  if (others.empty()) return factor;
  Value* dense = einsum->owningGraph()->insert(c10::aten::contiguous, {factor});
  for (const Use& use : others) use.user->replaceInput(use.offset, dense);
  return dense;
}

void rewrite(Node* einsum, const Product& product, const Order& order, const StrideReaders& readers) {
  Graph& graph = *einsum->owningGraph();
  const torch::jit::WithInsertPoint guard(einsum);
  static const Symbol operand = Symbol::fromQualString("ipex::einsum_operand");
  std::array<Value*, 2> factors, numbers, taken;
  for (const size_t i : {0, 1}) {
    numbers[i] = number_of(product.factors[i], einsum);
    factors[i] = numbers[i] ? product.factors[i]->node()->input(0) : product.factors[i];
  }
  if (product.serves_all) factors[0] = copied_for_all(factors[0], einsum, readers);
  for (const size_t i : {0, 1}) {
    const auto &own = product.letters[i], &others = product.letters[1 - i];
    std::vector<int64_t> order_of_factor;
    for (const char c : product.wanted[i]) order_of_factor.push_back(from_end(own, c));
    const std::vector<int64_t> summed{from_end(own, product.summed), from_end(others, product.summed)};
    taken[i] = graph.insert(operand, {factors[i], factors[1 - i], order_of_factor, summed, product.has_more[i]});
    if (numbers[i]) taken[i] = graph.insert(c10::aten::mul, {taken[i], numbers[i]});
  }
  Value* result = graph.insert(c10::aten::matmul, {taken[0], taken[1]});
  if (!order.swapped.empty()) {
    result = graph.insert(c10::aten::transpose, {result, order.swapped[0], order.swapped[1]});
  } else if (!order.permuted.empty()) {
    result = graph.insert(c10::aten::permute, {result, order.permuted});
  }
  replace(einsum, result->node());
}

bool run(Context& context) {
  std::optional<StrideReaders> readers;
  bool changed = false;
  for_each(context.graph, "aten::einsum", [&](Node* einsum) {
    const auto product = read(einsum);
    if (!product) return context.declined(einsum, "it is not a product of two batches of matrices");
    const Order order = order_of_result(*product);
    if (!order.is_known) return context.declined(einsum, "its result has its dimensions in another order");
    if (!readers) readers.emplace(context.graph);
    if (readers->see(einsum->output())) return context.declined(einsum, "the strides of a result depend on it");
    context.applied(einsum, "rewritten as matmul");
    rewrite(einsum, *product, order, *readers);
    changed = true;
  });
  return changed;
}

}  // namespace

Pass rewrite_einsum() { return {"rewrite_einsum", run, needs(lists_are_values, one_linear_pattern)}; }

}  // namespace ipex::passes
