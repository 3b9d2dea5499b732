#include "packed/facts.h"

namespace ipex::runtime {
namespace {

std::string in_words(const c10::IValue& value) {
  if (value.isNone()) return "float32";
  if (value.isString()) return value.toStringRef();
  if (value.isBool()) return value.toBool() ? "1" : "0";
  if (value.isInt()) return c10::str(value.toInt());
  if (value.isDouble()) return c10::str(value.toDouble());
  if (value.isIntList()) return c10::str(at::IntArrayRef(value.toIntVector()));
  if (value.isTuple()) {  // a scale and a zero point
    const auto& numbers = value.toTupleRef().elements();
    return c10::str("uint8 * ", numbers[0].toDouble(), " from ", numbers[1].toInt());
  }
  std::string text;
  for (const c10::IValue& element : value.toListRef()) text += (text.empty() ? "" : ", ") + in_words(element);
  const bool are_texts = value.toList().elementType()->kind() == c10::TypeKind::StringType;
  return are_texts ? text : "[" + text + "]";
}

}  // namespace

std::string Facts::in_words() const {
  std::string text;
  for (const auto& [name, value] : values) text += (text.empty() ? "" : ", ") + name + "=" + runtime::in_words(value);
  return op + "(" + text + ")";
}

std::vector<std::tuple<std::string, c10::IValue>> Facts::by_name() const {
  std::vector<std::tuple<std::string, c10::IValue>> found{{"op", op}};
  found.insert(found.end(), values.begin(), values.end());
  return found;
}

}  // namespace ipex::runtime
