#include "pass.h"

#include <algorithm>

namespace ipex::passes {
namespace {

// The last part of "M::/__module.layer1/__module.layer1.0.relu", as the user wrote it: "layer1.0.relu".
std::string module_path(const std::string& scope) {
  const std::string marker = "__module.";
  const size_t start = scope.rfind(marker);
  return start == std::string::npos ? "" : scope.substr(start + marker.size());
}

std::string source_line(const Node* node) {
  const auto place = node->sourceRange().file_line_col();
  if (!place) return "";
  const auto& [file, line, column] = *place;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(line);
}

}  // namespace

std::string describe(const Node* node) {
  std::string text = node->kind().toQualString();
  if (const std::string path = module_path(node->scopeName()); !path.empty()) {
    text += " in " + path;
  } else if (const std::string line = source_line(node); !line.empty()) {
    text += " at " + line;
  }
  return text + " (%" + (node->outputs().empty() ? "none" : node->output(0)->debugName()) + ")";
}

void Recorder::applied(const Node* node, const std::string& what) {
  const std::string name = describe(node);
  std::erase_if(report_, [&](const Decision& d) { return !d.applied && d.node == name; });
  record({pass_, name, true, what});
}

void Recorder::declined(const Node* node, const std::string& reason) { record({pass_, describe(node), false, reason}); }

void Recorder::record(Decision decision) {
  const bool known = std::any_of(report_.begin(), report_.end(), [&](const Decision& d) {
    return d.pass == decision.pass && d.node == decision.node && d.applied == decision.applied &&
           d.reason == decision.reason && !d.applied;
  });
  if (!known) report_.push_back(std::move(decision));
}

}  // namespace ipex::passes
