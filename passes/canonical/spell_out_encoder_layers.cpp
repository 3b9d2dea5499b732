// spell_out_encoder_layers: what torch.nn.MultiheadAttention and torch.nn.TransformerEncoderLayer call in eval mode becomes
// the ops that it is made of. In one op no weight can be packed.
//
//   before   %y, %weights = aten::_native_multi_head_attention(%x, %x, %x, ..)
//   after    %qkv = aten::linear(%x, %qkv_weight, %qkv_bias)
//            %h = aten::scaled_dot_product_attention(the heads of %qkv)
//            %y = aten::linear(the heads side by side, %proj_weight, %proj_bias)
//
// and aten::_transformer_encoder_layer_fwd, which has two layer_norms and two more linears around that.
// Declines when there is a mask, when query, key and value differ, when the weights of the attention are read, and when a
// weight is not a constant of the shape that the layer gives it: these ops check little of what they are given.
#include <torch/csrc/jit/ir/constants.h>

#include "ir/graph_walk.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

using torch::jit::NamedValue;
using torch::jit::toIValue;

// Inserts ops where the node stands that they take the place of.
class Speller {
 public:
  explicit Speller(Node* node) : node_(node), graph_(*node->owningGraph()) {}

  Value* call(const char* op, const std::vector<NamedValue>& inputs) {
    Value* result = graph_.insert(Symbol::fromQualString(op), inputs);
    result->node()->setSourceRange(node_->sourceRange());
    result->node()->setScope(node_->scope());
    return result;
  }

  Value* linear(Value* x, const char* weight, const char* bias) {
    return call("aten::linear", {x, argument(weight), argument(bias)});
  }

  Value* norm(Value* x, const char* weight, const char* bias) {
    Value* shape = list({argument("embed_dim")});
    return call("aten::layer_norm", {x, shape, argument(weight), argument(bias), argument("eps"), false});
  }

  Value* attention(Value* x, const char* heads_name) {
    const int64_t width = integer("embed_dim"), heads = integer(heads_name);
    Value* batch = call("aten::size", {x, 0});
    Value* length = call("aten::size", {x, 1});
    Value* qkv = linear(x, "qkv_weight", "qkv_bias");
    Value* shape = list({batch, length, number(3), number(heads), number(width / heads)});
    Value* apart = call("aten::permute", {call("aten::view", {qkv, shape}), std::vector<int64_t>{2, 0, 3, 1, 4}});
    std::vector<NamedValue> heads_of_each;
    for (int64_t i = 0; i < 3; ++i) heads_of_each.emplace_back(call("aten::select", {apart, 0, i}));
    Value* y = call("aten::transpose", {call("aten::scaled_dot_product_attention", heads_of_each), 1, 2});
    Value* joined = call("aten::reshape", {y, list({batch, length, number(width)})});
    return linear(joined, "proj_weight", "proj_bias");
  }

  // Not found by its arguments: a tensor would pass for a number.
  Value* sum(Value* a, Value* b) {
    Node* add = graph_.insertNode(graph_.create(c10::aten::add, {a, b, number(1)}));
    add->setSourceRange(node_->sourceRange());
    return add->output();
  }

  Value* feed_forward(Value* x) {
    Value* hidden = linear(x, "ffn_weight_1", "ffn_bias_1");
    hidden = toIValue(argument("use_gelu"))->toBool() ? call("aten::gelu", {hidden}) : call("aten::relu", {hidden});
    return linear(hidden, "ffn_weight_2", "ffn_bias_2");
  }

  Value* layer(Value* x) {
    const auto normed = [&](Value* y, int which) {
      return which == 1 ? norm(y, "norm_weight_1", "norm_bias_1") : norm(y, "norm_weight_2", "norm_bias_2");
    };
    if (toIValue(argument("norm_first"))->toBool()) {
      x = sum(x, attention(normed(x, 1), "num_heads"));
      return sum(x, feed_forward(normed(x, 2)));
    }
    x = normed(sum(x, attention(x, "num_heads")), 1);
    return normed(sum(x, feed_forward(x)), 2);
  }

 private:
  Value* argument(const char* name) const { return node_->namedInput(name); }
  int64_t integer(const char* name) const { return toIValue(argument(name))->toInt(); }
  Value* number(int64_t value) { return graph_.insertConstant(value); }
  Value* list(const std::vector<Value*>& values) {
    return graph_.insertNode(graph_.createList(c10::IntType::get(), values))->output();
  }

  Node* node_;
  torch::jit::Graph& graph_;
};

bool is_none(const Value* value) {
  const auto constant = toIValue(value);
  return constant && constant->isNone();
}

struct Weight {
  const char* name;
  std::vector<int64_t> shape;
};

std::optional<std::string> reason_against_weights(const Node* node, const std::vector<Weight>& weights) {
  std::optional<at::ScalarType> dtype;
  for (const auto& [name, shape] : weights) {
    const auto constant = toIValue(node->namedInput(name));
    if (!constant || !constant->isTensor()) return std::string("its ") + name + " is not a constant tensor";
    const at::Tensor& weight = constant->toTensor();
    if (weight.sizes() != at::IntArrayRef(shape))
      return std::string("its ") + name + " has another shape than a layer's";
    if (weight.scalar_type() != dtype.value_or(weight.scalar_type())) return "its weights differ in dtype";
    dtype = weight.scalar_type();
  }
  return std::nullopt;
}

std::vector<Weight> weights_of_attention(int64_t width) {
  return {{"qkv_weight", {3 * width, width}},
          {"qkv_bias", {3 * width}},
          {"proj_weight", {width, width}},
          {"proj_bias", {width}}};
}

std::optional<std::string> reason_against(const Node* node, std::initializer_list<const char*> numbers,
                                          const char* heads_name) {
  if (!is_none(node->namedInput("mask"))) return "it has a mask";
  for (const char* name : numbers) {
    if (!toIValue(node->namedInput(name))) return std::string("its ") + name + " is not known";
  }
  const int64_t width = toIValue(node->namedInput("embed_dim"))->toInt();
  const int64_t heads = toIValue(node->namedInput(heads_name))->toInt();
  if (heads < 1 || width < 1 || width % heads != 0) return "its width is not a multiple of its heads";
  return reason_against_weights(node, weights_of_attention(width));
}

std::optional<std::string> reason_against_attention(const Node* node) {
  const Value* query = node->namedInput("query");
  if (query != node->namedInput("key") || query != node->namedInput("value")) return "query, key and value differ";
  if (!node->output(1)->uses().empty()) return "the weights of the attention are read";
  return reason_against(node, {"embed_dim", "num_head"}, "num_head");
}

std::optional<std::string> reason_against_layer(const Node* node) {
  const auto reason = reason_against(node, {"embed_dim", "num_heads", "use_gelu", "norm_first"}, "num_heads");
  if (reason) return reason;
  const int64_t width = toIValue(node->namedInput("embed_dim"))->toInt();
  const auto first = toIValue(node->namedInput("ffn_weight_1"));
  const int64_t hidden = first && first->isTensor() && first->toTensor().dim() == 2 ? first->toTensor().size(0) : 0;
  return reason_against_weights(node, {{"norm_weight_1", {width}},
                                       {"norm_bias_1", {width}},
                                       {"norm_weight_2", {width}},
                                       {"norm_bias_2", {width}},
                                       {"ffn_weight_1", {hidden, width}},
                                       {"ffn_bias_1", {hidden}},
                                       {"ffn_weight_2", {width, hidden}},
                                       {"ffn_bias_2", {width}}});
}

bool run(Context& context) {
  bool changed = false;
  const auto spell_out = [&](Node* node, const std::optional<std::string>& reason, auto&& spell) {
    if (reason) return context.declined(node, *reason);
    context.applied(node, "spelled out");
    const torch::jit::WithInsertPoint guard(node);
    Value* result = spell(Speller(node));
    result->copyMetadata(node->output(0));
    node->output(0)->replaceAllUsesWith(result);
    node->destroy();
    changed = true;
  };
  for_each(context.graph, "aten::_native_multi_head_attention", [&](Node* node) {
    spell_out(node, reason_against_attention(node),
              [&](Speller speller) { return speller.attention(node->namedInput("query"), "num_head"); });
  });
  for_each(context.graph, "aten::_transformer_encoder_layer_fwd", [&](Node* node) {
    spell_out(node, reason_against_layer(node),
              [&](Speller speller) { return speller.layer(node->namedInput("src")); });
  });
  return changed;
}

}  // namespace

Pass spell_out_encoder_layers() { return {"spell_out_encoder_layers", run, needs(aten_layers, roundings_read)}; }

}  // namespace ipex::passes
