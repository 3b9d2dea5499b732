#include "precision/sites.h"

#include <ATen/ATen.h>
#include <ipex/post_ops.h>
#include <torch/csrc/jit/ir/constants.h>

#include <map>
#include <unordered_set>

#include "ir/aliasing.h"
#include "ir/graph_walk.h"
#include "ir/lists.h"
#include "ir/motion.h"
#include "ir/single_pixel.h"

namespace ipex::passes {
namespace {

using torch::jit::toIValue;

// So many products of two 8-bit numbers fit into a sum of 32 bits.
constexpr int64_t most_products = (int64_t{1} << 31) / (255 * 128);

// Reading fewer weights than that takes floats no longer, and rounding what they are multiplied with takes a call.
constexpr int64_t few_weights = 1 << 15;

bool is_one_of(const Node* node) {
  static const OpName convolution("ipex::convolution_run"), linear("ipex::linear_run");
  return convolution.is_of(node) || linear.is_of(node);
}

std::optional<std::string> reason_against(const Anchor& anchor, const std::optional<Quantization>& asked) {
  if (asked && is_in_one_of(anchor.run(), asked->float_layers)) return "it is one of the layers to leave in float";
  if (anchor.dtype() != at::kFloat) return "its weight is not float32";
  const int64_t rank = anchor.spatial_rank();
  if (rank == 0 && !toIValue(anchor.argument("folded_scale"))->isNone()) {
    return "a batch_norm is folded into it that is another one for other ranks";
  }
  const at::Tensor weight = toIValue(anchor.argument("weight"))->toTensor();
  if (!weight.isfinite().all().item<bool>()) return "its weight holds values that are not finite";
  if (asked && rank > 0 && weight.numel() < few_weights && is_single_pixel(anchor.output())) {
    return "it has few weights and is called for a single pixel, as in a gate: floats are as fast";
  }
  if (weight.numel() / anchor.output_channels() > most_products) return "its sums are too long for 32 bits";
  return std::nullopt;
}

// The post-op that takes each operand.
std::vector<std::string> takers_of_operands(const Anchor& anchor) {
  std::vector<std::string> takers = anchor.post_ops();
  std::erase_if(takers, [](const std::string& post_op) { return !takes_operand(post_op); });
  return takers;
}

bool adds(const std::string& post_op) { return post_op == "add" || post_op == "add_" || post_op == "radd"; }

bool is_attention(const Node* node) {
  static const OpName steps("ipex::attention"), whole("aten::scaled_dot_product_attention");
  return steps.is_of(node) || whole.is_of(node);
}

// Whether the op gives views of its first input, or a copy of it in another order.
bool moves(const Node* node) {
  static const OpName pieces[] = {OpName("aten::unbind"), OpName("aten::select"), OpName("aten::contiguous")};
  if (node->kind() == c10::prim::ListUnpack) return true;
  const bool is_piece = is_of_any(pieces, node);
  return is_piece || has_trait(node, trait::slices) || has_trait(node, trait::cuts) ||
         (has_trait(node, trait::chooses) &&
          (has_trait(node, trait::reshapes) || has_trait(node, trait::moves_dimensions)));
}

// What becomes part of a chain of elementwise ops, whose kernel reads 8-bit numbers.
bool is_arithmetic(const Node* node) {
  static const OpName names[] = {OpName("aten::add.Tensor"), OpName("aten::sub.Tensor"), OpName("aten::mul.Tensor"),
                                 OpName("ipex::add_like"),   OpName("ipex::mul_like"),   OpName("ipex::sub_like")};
  return is_of_any(names, node);
}

bool is_average(const Node* node) {
  static const OpName names[] = {OpName("aten::adaptive_avg_pool2d"), OpName("aten::mean.dim")};
  return is_of_any(names, node);
}

bool is_window_average(const Node* node) {
  static const OpName pool("aten::avg_pool2d");
  return pool.is_of(node);
}

// The concatenation that the list goes to, if nobody else has it.
const Node* joined_by(const Node* list) {
  if (!makes_list(list) || list->output()->uses().size() != 1) return nullptr;
  const Node* reader = list->output()->uses()[0].user;
  return has_trait(reader, trait::joins) && reader->outputs().size() == 1 ? reader : nullptr;
}

class Finder {
 public:
  explicit Finder(Context& context) : context_(context) {}

  Sites find() {
    for_each_node(context_.graph->block(), [&](Node* node) {
      nodes_.push_back(node);
      if (is_attention(node)) attentions_.insert(node);
      if (!is_one_of(node)) return;
      const auto anchor = Anchor::producing(node->output());
      if (!anchor && !context_.options.quantization) return;  // it was packed before
      TORCH_CHECK(anchor, "ipex.quantization: expected a model that was not optimised before, got one with ",
                  describe(node), ". Quantise the original.");
      if (const auto reason = reason_against(*anchor, context_.options.quantization)) {
        context_.declined(node, *reason);
      } else {
        quantizable_.insert(node);
      }
    });
    decline_attentions();
    Sites sites;
    find_shared(sites);
    for (Node* node : nodes_) {
      if (stops_motion(node)) keys_.clear();  // what was read may be another tensor from here on
      if (quantizable_.count(node)) sites.layers.push_back(site_of(*Anchor::producing(node->output())));
      if (attentions_.count(node)) sites.attentions.push_back(attention_site_of(node));
    }
    return sites;
  }

 private:
  void find_shared(Sites& sites) {
    if (!context_.options.quantization) return;  // what is rounded is the given model's to say
    for (Node* node : nodes_) {
      if (node->outputs().size() != 1 || !is_shared(node->output())) continue;
      sites.shared.push_back({node->output(), new_key(node)});
      shared_keys_[node->output()] = sites.shared.back().key;
    }
  }

  bool is_shared(const Value* value) const {
    const auto takes_numbers = [&](const Use& use) { return is_read_in_bytes(use) || is_read_by_others(use); };
    const auto& uses = value->uses();
    return is_made_by_layers(value) &&
           std::any_of(uses.begin(), uses.end(), [&](const Use& use) { return is_read_by_others(use); }) &&
           std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
             return asks_for_sizes(use.user) || (takes_numbers(use) && is_in_block_of(value, use.user));
           });
  }

  static bool is_in_block_of(const Value* value, const Node* reader) { return can_wait(value->node(), reader); }

  bool is_made_by_layers(const Value* value) const {
    const Node* maker = value->node();
    if (quantizable_.count(const_cast<Node*>(maker))) return true;
    const Node* list = has_trait(maker, trait::joins) && !maker->inputs().empty() ? maker->input(0)->node() : nullptr;
    return list && joined_by(list) == maker && !list->inputs().empty() &&
           std::all_of(list->inputs().begin(), list->inputs().end(), [&](const Value* part) {
             return quantizable_.count(const_cast<Node*>(part->node())) && part->uses().size() == 1;
           });
  }

  // By an op that is no layer and has a form for numbers, or is one of floats that it pays to make of them.
  bool is_read_by_others(const Use& use) const {
    static const OpName linear("ipex::linear_run");
    if (is_in_one_of(use.user, context_.options.quantization->float_layers)) return false;
    if (is_average(use.user)) return use.offset == 0 && !linear.is_of(use.user->input(0)->node());
    if (is_arithmetic(use.user)) return use.offset < 2 && is_rounded(use.user->output());
    const Node* joined = joined_by(use.user);
    return joined && is_rounded(joined->output());
  }

  bool is_rounded_or_joined(const Value* value) const {
    const auto is_joined = [&](const Use& use) {
      const Node* joined = joined_by(use.user);
      return joined && is_rounded(joined->output());
    };
    return std::all_of(value->uses().begin(), value->uses().end(), is_joined) || is_rounded(value);
  }

  // Whether layers alone read the value, or pieces of it, or what elementwise ops make of it.
  bool is_rounded(const Value* value, int distance = 0) const {
    constexpr int furthest = 16;
    const auto& uses = value->uses();
    return !uses.empty() && std::all_of(uses.begin(), uses.end(), [&](const Use& use) {
      if (asks_for_sizes(use.user)) return true;
      if (quantizable_.count(use.user)) return use.offset == 0;
      const bool is_cut = use.offset == 0 && has_trait(use.user, trait::slices);
      if (is_cut || use.user->kind() == c10::prim::ListUnpack) {
        const auto made = use.user->outputs();
        return distance < furthest && std::all_of(made.begin(), made.end(),
                                                  [&](const Value* piece) { return is_rounded(piece, distance + 1); });
      }
      const bool is_step = is_arithmetic(use.user) || (has_trait(use.user, trait::elementwise) && use.offset == 0);
      return is_step && distance < furthest && is_rounded(use.user->output(), distance + 1);
    });
  }

  Site site_of(const Anchor& anchor) {
    Value* seen = whole_of(anchor.input());
    Site site{anchor, key_of(anchor.run(), seen), seen, seen != anchor.input(), {}};
    const std::vector<std::string> takers = takers_of_operands(anchor);
    TORCH_INTERNAL_ASSERT(takers.size() == anchor.operands().size());
    for (size_t i = 0; i < takers.size(); ++i) {
      Value* operand = anchor.operands()[i];
      const bool is_given = !context_.options.quantization && rounding_of(operand);
      const bool is_carried = adds(takers[i]) && (is_given || is_carried_in_bytes(operand));
      site.operand_keys.push_back(is_carried ? std::optional(key_of(anchor.run(), operand)) : std::nullopt);
    }
    return site;
  }

  // Those that don't stay in int8. Until nothing changes: what one reads may be read by another that is declined.
  void decline_attentions() {
    const auto& asked = context_.options.quantization;
    if (!asked) return attentions_.clear();  // scales are those of the given model, which has none for attention
    for (bool changed = true; changed;) {
      changed = false;
      for (Node* node : nodes_) {
        if (!attentions_.count(node)) continue;
        const auto reason = reason_against_attention(node, *asked);
        if (!reason) continue;
        context_.declined(node, *reason);
        attentions_.erase(node);
        changed = true;
      }
    }
  }

  std::optional<std::string> reason_against_attention(const Node* node, const Quantization& asked) const {
    if (!asked.attention || is_in_one_of(node, asked.float_layers)) return "it was to be left in float";
    for (size_t i = 0; i < 3; ++i) {
      const Value* origin = origin_of(node->input(i));
      if (!quantizable_.count(const_cast<Node*>(origin->node()))) {
        return c10::str("it reads what ", describe(origin->node()), " gives, and that is no layer in int8");
      }
      if (origin->node()->owningBlock() != node->owningBlock()) return "it reads what is made outside of its block";
      if (!is_for_attentions(origin)) return "somebody else reads its query, key or value";
    }
    return std::nullopt;
  }

  static const Value* origin_of(const Value* value) {
    while (!value->node()->inputs().empty() && moves(value->node())) value = value->node()->input(0);
    return value;
  }

  bool is_for_attentions(const Value* value) const {
    return std::all_of(value->uses().begin(), value->uses().end(), [&](const Use& use) {
      if (attentions_.count(use.user)) return use.offset < 3;
      if (asks_for_sizes(use.user)) return true;
      const auto& made = use.user->outputs();
      return use.offset == 0 && moves(use.user) &&
             std::all_of(made.begin(), made.end(), [&](const Value* other) { return is_for_attentions(other); });
    });
  }

  // What the value is a piece of, if it was cut into pieces that such layers read, and nobody else. Else itself.
  Value* whole_of(Value* value) const {
    const Node* unpacked = value->node();
    if (!context_.options.quantization || unpacked->kind() != c10::prim::ListUnpack) return value;
    const Node* cut = unpacked->input()->node();
    if (!has_trait(cut, trait::slices) || cut->output()->uses().size() != 1) return value;
    Value* whole = cut->input(0);
    const bool is_elsewhere = whole->node()->owningBlock() != cut->owningBlock() || !whole->node()->owningBlock();
    if (is_elsewhere || whole->node()->kind() == c10::prim::Param) return value;
    const auto reads_numbers = [&](const Use& use) {
      // aten pools no floats that have gaps without a copy.
      const bool is_pooled = is_window_average(use.user) && use.offset == 0 && is_rounded_or_joined(use.user->output());
      const bool takes_numbers = (use.offset == 0 && quantizable_.count(use.user)) ||
                                 (is_made_by_layers(whole) && (is_pooled || is_read_by_others(use)));
      return takes_numbers && can_wait(whole->node(), use.user);
    };
    const bool are_read_in_bytes = std::all_of(
        unpacked->outputs().begin(), unpacked->outputs().end(),
        [&](const Value* piece) { return std::all_of(piece->uses().begin(), piece->uses().end(), reads_numbers); });
    const bool is_cut_only = std::all_of(whole->uses().begin(), whole->uses().end(),
                                         [&](const Use& use) { return use.user == cut || asks_for_sizes(use.user); });
    return are_read_in_bytes && is_cut_only ? whole : value;
  }

  AttentionSite attention_site_of(Node* node) {
    AttentionSite site{node, {}};
    for (size_t i = 0; i < 3; ++i) {
      auto* origin = const_cast<Value*>(origin_of(node->input(i)));
      std::string& key = origin_keys_[origin];
      if (key.empty()) key = new_key(origin->node());
      site.parts[i] = {origin, key};
    }
    return site;
  }

  std::string key_of(Node* node, Value* value) {
    if (const auto shared = shared_keys_.find(value); shared != shared_keys_.end()) return shared->second;
    std::string& key = keys_[{node->owningBlock(), value}];
    if (key.empty()) key = new_key(node);
    return key;
  }

  std::string new_key(const Node* node) {
    return c10::str(context_.recorder.method(), "/", next_key_++, " ", describe(node));
  }

  // Whether a site makes the tensor, and only sites read it.
  bool is_carried_in_bytes(const Value* value) const {
    static const OpName max_pool("aten::max_pool2d");
    if (shared_keys_.count(value)) return true;
    const Node* maker = value->node();
    const bool is_made = quantizable_.count(const_cast<Node*>(maker)) ||
                         (max_pool.is_of(maker) && quantizable_.count(const_cast<Node*>(maker->input(0)->node())));
    return is_made && std::all_of(value->uses().begin(), value->uses().end(),
                                  [&](const Use& use) { return is_read_in_bytes(use); });
  }

  bool is_read_in_bytes(const Use& use) const {
    if (quantizable_.count(use.user)) return use.offset == 0;
    if (!makes_list(use.user)) return false;
    const auto& uses = use.user->output()->uses();
    if (uses.size() != 1 || !quantizable_.count(uses[0].user) || uses[0].offset != 2) return false;
    return adds(takers_of_operands(*Anchor::producing(uses[0].user->output()))[use.offset]);
  }

  Context& context_;
  std::vector<Node*> nodes_;
  std::unordered_set<Node*> quantizable_;
  std::unordered_set<const Node*> attentions_;
  std::map<std::pair<Block*, Value*>, std::string> keys_;
  std::map<const Value*, std::string> origin_keys_;  // nobody writes to these
  std::map<const Value*, std::string> shared_keys_;  // nor to these, before their readers read them
  size_t next_key_ = 0;
};

}  // namespace

bool is_rounding(const Node* node) {
  static const OpName rounding("aten::fake_quantize_per_tensor_affine.");
  return rounding.is_of(node) && toIValue(node->input(4)) == torch::jit::IValue(255) && toIValue(node->input(1));
}

std::optional<Rounded> rounding_of(const Value* value) {
  static const OpName relu("aten::relu");
  const Node* node = value->node();
  if (is_rounding(node)) {
    return Rounded{toIValue(node->input(1))->toDouble(), toIValue(node->input(2))->toInt()};
  }
  if (!has_trait(node, trait::chooses) || (has_trait(node, trait::elementwise) && !relu.is_of(node)))
    return std::nullopt;
  if (!has_trait(node, trait::joins)) return rounding_of(node->input(0));
  const auto parts = elements_of(node->input(0));
  if (!parts || parts->empty()) return std::nullopt;
  const auto first = rounding_of(parts->front());
  const bool are_same =
      std::all_of(parts->begin(), parts->end(), [&](const Value* part) { return rounding_of(part) == first; });
  return are_same ? first : std::nullopt;
}

Sites quantizable_sites(Context& context) { return Finder(context).find(); }

}  // namespace ipex::passes
