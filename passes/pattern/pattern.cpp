#include "pattern/pattern.h"

#include <algorithm>

namespace ipex::passes {
namespace {

// The names in "(%a, %b)" or "%a, %b : int".
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find('%'); at != std::string::npos; at = text.find('%', at + 1)) {
    names.push_back(text.substr(at + 1, text.find_first_of(",) ", at) - at - 1));
  }
  return names;
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
      inputs_(names_in(text.substr(text.find('(')))),
      outputs_(names_in(text.substr(0, text.find('=')))) {
  if (op_in(text).ends_with(in_place_too)) in_place_.emplace(plain(op_in(text)) + "_");
}

void PatternLine::accept_in_place() {
  const std::string name = std::string(op_.kind().toQualString()) + "_";
  if (OpName::row(name)) in_place_.emplace(name);
}

bool PatternLine::fits(const Node* node) const {
  return node->inputs().size() == inputs_.size() && node->outputs().size() == outputs_.size() &&
         (op_.is_of(node) || (in_place_ && in_place_->is_of(node)));
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
