#include "pattern/pattern.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>

#include "ir/reading.h"

namespace ipex::passes {
namespace {

// What stands between commas, without spaces and types: "%a" and "%b" of "%a, %b : int".
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream list = reading(text);
  for (std::string part; std::getline(list, part, ',');) {
    const size_t begin = part.find_first_not_of(' ');
    parts.push_back(part.substr(begin, part.find_first_of(" :", begin) - begin));
  }
  return parts;
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names = split(text);
  for (size_t i = 0; i < names.size(); ++i)
    names[i] = names[i].starts_with('%') ? names[i].substr(1) : std::to_string(i);
  return names;
}

std::map<size_t, std::string> constants_in(const std::string& text) {
  std::map<size_t, std::string> constants;
  const std::vector<std::string> parts = split(text);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].starts_with('%')) constants[i] = parts[i];
  }
  return constants;
}

// "%a, %b" of "%z = aten::add(%a, %b)".
std::string arguments_in(const std::string& line) {
  const size_t open = line.find('(');
  return line.substr(open + 1, line.rfind(')') - open - 1);
}

bool is_constant(const Value* value, const std::string& text) {
  if (text == "None") return value->mustBeNone();
  const auto constant = torch::jit::toIValue(value);
  return constant && constant->isString() && "'" + constant->toStringRef() + "'" == text;
}

// "aten::add_?" of "%z = aten::add_?(%y, %other, %alpha)".
std::string op_in(const std::string& line) {
  const size_t equals = line.find('='), open = line.find('(');
  TORCH_INTERNAL_ASSERT(equals != std::string::npos && open != std::string::npos, "no pattern: ", line);
  const size_t begin = line.find_first_not_of(' ', equals + 1);
  return line.substr(begin, open - begin);
}

constexpr std::string_view in_place_too = "_?";

std::string plain(const std::string& op) {
  return op.ends_with(in_place_too) ? op.substr(0, op.size() - in_place_too.size()) : op;
}

}  // namespace

PatternLine::PatternLine(const std::string& text)
    : op_(plain(op_in(text))),
      inputs_(names_in(arguments_in(text))),
      outputs_(names_in(text.substr(0, text.find('=')))),
      constants_(constants_in(arguments_in(text))) {
  if (op_in(text).ends_with(in_place_too)) in_place_.emplace(plain(op_in(text)) + "_");
}

void PatternLine::accept_in_place() {
  const std::string name = std::string(op_.kind().toQualString()) + "_";
  if (OpName::row(name)) in_place_.emplace(name);
}

bool PatternLine::fits(const Node* node) const {
  return node->inputs().size() == inputs_.size() && node->outputs().size() == outputs_.size() &&
         (op_.is_of(node) || (in_place_ && in_place_->is_of(node))) &&
         std::all_of(constants_.begin(), constants_.end(),
                     [&](const auto& constant) { return is_constant(node->input(constant.first), constant.second); });
}

std::vector<Symbol> PatternLine::kinds() const {
  std::vector<Symbol> kinds{op_.kind()};
  if (in_place_) kinds.push_back(in_place_->kind());
  return kinds;
}

Value* PatternLine::input(Node* node, const std::string& name) const {
  const auto found = std::find(inputs_.begin(), inputs_.end(), name);
  TORCH_INTERNAL_ASSERT(found != inputs_.end(), "no %", name, " in the pattern of ", op_.kind().toQualString());
  return node->input(static_cast<size_t>(found - inputs_.begin()));
}

}  // namespace ipex::passes
