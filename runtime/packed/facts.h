// What a context says of itself: names and values, in order. Programs read the values, people the words.
#pragma once

#include <ATen/core/ivalue.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ipex::runtime {

struct Facts {
  using Values = std::vector<std::pair<std::string, c10::IValue>>;

  std::string op;
  Values values;

  void add(const Values& more) { values.insert(values.end(), more.begin(), more.end()); }
  void add_if_any(const char* name, const std::string& text) {
    if (!text.empty()) values.emplace_back(name, text);
  }
  // "op(name=value, name=value)".
  std::string in_words() const;
  // For Python's dict(). The op is one of them.
  std::vector<std::tuple<std::string, c10::IValue>> by_name() const;
};

}  // namespace ipex::runtime
