// A scripted graph keeps the range of each call that was inlined. A traced one keeps the Python stack as text, innermost
// call first, a line for each: "/home/me/model.py(12): forward".
#include "ir/source_place.h"

#include <torch/csrc/jit/ir/scope.h>

#include "ir/reading.h"

namespace ipex::passes {
namespace {

struct Line {
  std::string file;
  int64_t number;
};

// Of torch, or of ipex, which may have done the tracing.
bool is_no_users(const std::string& file) {
  for (const char* part : {"-packages/torch/", "/torch/nn/", "/torch/jit/", "/ipex/_", "/ipex/quantization/"}) {
    if (file.find(part) != std::string::npos) return true;
  }
  return false;
}

std::vector<Line> lines_of_trace(const std::string& stack) {
  std::vector<Line> lines;
  std::istringstream text = reading(stack);
  for (std::string frame; std::getline(text, frame);) {
    const size_t end = frame.find("): ");
    const size_t begin = end == std::string::npos ? end : frame.rfind('(', end);
    if (begin == std::string::npos) continue;
    const std::string number = frame.substr(begin + 1, end - begin - 1);
    if (number.empty() || number.size() > 9 || number.find_first_not_of("0123456789") != std::string::npos) continue;
    lines.push_back({frame.substr(0, begin), std::stoll(number)});
  }
  return lines;
}

// Innermost first.
std::vector<Line> lines_of(const Node* node) {
  std::vector<torch::jit::SourceRange> ranges{node->sourceRange()};
  if (const auto calls = node->callstack()) {
    const auto entries = (*calls)->vec();
    for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) ranges.push_back(std::get<1>(*entry));
  }
  std::vector<Line> lines;
  for (const torch::jit::SourceRange& loaded : ranges) {
    // The code in a file is generated; it knows what from.
    const torch::jit::SourceRange range = loaded.findSourceRangeThatGenerated().value_or(loaded);
    if (!range.source()) continue;
    const std::vector<Line> traced = lines_of_trace(range.source()->text_str().str());
    lines.insert(lines.end(), traced.begin(), traced.end());
    const auto place = range.file_line_col();
    if (traced.empty() && place) lines.push_back({std::get<0>(*place), static_cast<int64_t>(std::get<1>(*place))});
  }
  return lines;
}

std::string path_of_calls(const Node* node) {
  std::string path;
  const auto calls = node->callstack();
  if (!calls) return path;
  for (const auto& [function, range, instance] : (*calls)->vec()) {
    if (!instance || instance->instance_name().empty() || instance->instance_name() == "SELF") continue;
    if (!path.empty()) path += '.';
    path += instance->instance_name();
  }
  return path;
}

}  // namespace

SourcePlace source_place(const Node* node) {
  SourcePlace place;
  place.module = module_path_of(node);
  if (place.module.empty()) place.module = path_of_calls(node);
  const std::vector<Line> lines = lines_of(node);
  for (const Line& line : lines) {
    if (!is_no_users(line.file)) return {place.module, line.file, line.number};
  }
  if (!lines.empty()) return {place.module, lines.front().file, lines.front().number};
  return place;
}

}  // namespace ipex::passes
