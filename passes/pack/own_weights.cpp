#include "pack/own_weights.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "copied_tensors.h"
#include "ir/graph_walk.h"
#include "ir/storages.h"

namespace ipex::passes {
namespace {

using Places = std::unordered_set<const void*>;

void add_places(const c10::IValue& value, Places& places) {
  for_each_tensor(value, [&](const at::Tensor& tensor) {
    for (const void* place : places_of(tensor)) places.insert(place);
  });
}

// Of a trace and of a frozen module, the graphs have tensors too.
Places places_in(const torch::jit::Module& module) {
  Places places;
  for (const auto& part : module.modules()) {
    for (const c10::IValue& attribute : part.attributes(/*recurse=*/false)) {
      if (!attribute.isObject()) add_places(attribute, places);
    }
    for (const auto& method : part.get_methods()) {
      for_each_node(torch::jit::toGraphFunction(method.function()).graph()->block(), [&](Node* node) {
        if (node->kind() != c10::prim::Constant) return;
        if (const auto value = torch::jit::toIValue(node->output())) add_places(*value, places);
      });
    }
  }
  return places;
}

bool looks_rows_up(const Use& use) {
  static const OpName ops[] = {OpName("aten::embedding"), OpName("aten::embedding_bag"), OpName("ipex::look_up"),
                               OpName("ipex::embedding_bag")};
  return use.offset == 0 && is_of_any(ops, use.user);
}

// One copy for equal pieces of memory: constants of several methods may be one tensor.
class OwnTensors {
 public:
  explicit OwnTensors(Places given) : given_(std::move(given)) {}

  bool contain(const at::Tensor& tensor) const {
    const auto places = places_of(tensor);
    return std::none_of(places.begin(), places.end(), [&](const void* place) { return given_.count(place) > 0; });
  }

  at::Tensor own(const at::Tensor& tensor) {
    const std::vector<int64_t> sizes = tensor.sizes().vec(), strides = tensor.strides().vec();
    at::Tensor& copied = copies_[{places_of(tensor)[0], tensor.storage_offset(), tensor.scalar_type(), sizes, strides}];
    if (!copied.defined()) copied = copy_of_piece(tensor);
    return copied;
  }

 private:
  using Piece = std::tuple<const void*, int64_t, at::ScalarType, std::vector<int64_t>, std::vector<int64_t>>;

  Places given_;
  std::map<Piece, at::Tensor> copies_;
};

}  // namespace

void own_weights(torch::jit::Module& optimized, const torch::jit::Module& original) {
  OwnTensors tensors(places_in(original));
  const auto is_shared = [&](const at::Tensor& tensor) {
    return tensor.layout() == at::kStrided && tensor.has_storage() && !tensors.contain(tensor);
  };
  for (const auto& method : optimized.get_methods()) {
    for_each_node(method.graph()->block(), [&](Node* node) {
      if (!node->hasAttribute(c10::attr::value) || node->kindOf(c10::attr::value) != torch::jit::AttributeKind::t)
        return;
      const at::Tensor tensor = node->t(c10::attr::value);
      const auto& uses = node->output()->uses();
      if (!is_shared(tensor) || std::all_of(uses.begin(), uses.end(), looks_rows_up)) return;
      node->t_(c10::attr::value, tensors.own(tensor));
    });
  }
  // Those that passes have made attributes.
  for (size_t i = 0; i < optimized.type()->numAttributes(); ++i) {
    const std::string& name = optimized.type()->getAttributeName(i);
    const c10::IValue value = optimized.attr(name);
    if (value.isTensor() && value.toTensor().defined() && is_shared(value.toTensor())) {
      optimized.setattr(name, tensors.own(value.toTensor()));
    }
  }
}

}  // namespace ipex::passes
