#include "ir/schemas.h"

#include <algorithm>
#include <string>
#include <unordered_set>

namespace ipex::passes {
namespace {

// What the schema says of sharing for the argument. Null where nothing is shared. Inputs of a variadic op have no argument.
const c10::AliasInfo* alias_of(const Node* node, size_t argument) {
  const auto* schema = node->maybeSchema();
  return schema && argument < schema->arguments().size() ? schema->arguments()[argument].alias_info() : nullptr;
}

bool is_tensor(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::TensorType::get()) ||
         argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor());
}

bool share_a_set(const c10::AliasInfo& a, const c10::AliasInfo& b) {
  const auto& sets = a.beforeSets();
  return std::any_of(sets.begin(), sets.end(), [&](const auto& set) { return b.beforeSets().count(set) > 0; });
}

}  // namespace

bool has_true_schema(const Node* node) {
  static const std::unordered_set<std::string> namespaces{
      "aten", "prim", "quantized", "quantized_decomposed", "profiler", "torchvision", "ipex"};
  return node->maybeSchema() && namespaces.count(node->kind().ns().toUnqualString()) > 0;
}

bool writes_argument(const Node* node, size_t argument) {
  const c10::AliasInfo* alias = alias_of(node, argument);
  return alias && alias->isWrite();
}

bool writes_elements(const c10::Argument& argument) {
  const c10::AliasInfo* alias = argument.alias_info();
  if (!alias) return false;
  if (is_tensor(argument)) return alias->isWrite();
  const auto& contained = alias->containedTypes();
  return std::any_of(contained.begin(), contained.end(), [](const c10::AliasInfo& inner) { return inner.isWrite(); });
}

bool keeps_argument(const Node* node, size_t argument) {
  const c10::AliasInfo* alias = alias_of(node, argument);
  return alias && !alias->isWildcardBefore() && alias->isWildcardAfter();
}

bool hands_on_argument(const Node* node, size_t argument) {
  const c10::AliasInfo* alias = alias_of(node, argument);
  if (!alias) return false;
  const auto& returns = node->schema().returns();
  return std::any_of(returns.begin(), returns.end(), [&](const c10::Argument& result) {
    const c10::AliasInfo* other = result.alias_info();
    return other && (other->isWildcardAfter() || share_a_set(*alias, *other));
  });
}

}  // namespace ipex::passes
