#include "pipeline/pass.h"

#include <algorithm>

namespace ipex::passes {
namespace {

std::string source_line(const Node* node) {
  const auto place = node->sourceRange().file_line_col();
  if (!place) return "";
  const auto& [file, line, column] = *place;
  return file.substr(file.rfind('/') + 1) + ":" + std::to_string(line);
}

std::string name_of(const Node* node) { return node->outputs().empty() ? "" : node->output(0)->debugName(); }

}  // namespace

// The last part of "M::/__module.layer1/__module.layer1.0.relu".
std::string module_path_of(const Node* node) {
  const std::string scope = node->scopeName(), marker = "__module.";
  const size_t start = scope.rfind(marker);
  return start == std::string::npos ? "" : scope.substr(start + marker.size());
}

bool is_in_one_of(const Node* node, const std::vector<std::string>& modules) {
  const std::string path = module_path_of(node);
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return path == module || path.starts_with(module + "."); });
}

std::string describe(const Node* node) {
  std::string text = node->kind().toQualString();
  if (const std::string path = module_path_of(node); !path.empty()) {
    text += " in " + path;
  } else if (const std::string line = source_line(node); !line.empty()) {
    text += " at " + line;
  }
  return text + " (%" + (node->outputs().empty() ? "none" : name_of(node)) + ")";
}

void Recorder::applied(const Pass& pass, const Node* node, const std::string& what, const Node* into) {
  const std::string name = describe(node);
  for (const size_t i : about_[name]) {
    if (!decisions_[i].applied && !stays_[i]) is_taken_back_[i] = true;
  }
  record({pass.name, name, true, what, method_, name_of(node), module_path_of(node), into ? name_of(into) : ""}, true);
}

void Recorder::declined(const Pass& pass, const Node* node, const std::string& reason) {
  record({pass.name, describe(node), false, reason, method_, name_of(node), module_path_of(node), ""},
         pass.reasons_stay);
}

void Recorder::record(Decision decision, bool stays) {
  std::vector<size_t>& about = about_[decision.node];
  const bool is_known = !decision.applied && std::any_of(about.begin(), about.end(), [&](size_t i) {
    const Decision& other = decisions_[i];
    return !is_taken_back_[i] && !other.applied && other.pass == decision.pass && other.reason == decision.reason;
  });
  if (is_known) return;
  about.push_back(decisions_.size());
  decisions_.push_back(std::move(decision));
  stays_.push_back(stays);
  is_taken_back_.push_back(false);
}

Report Recorder::report() const {
  Report report;
  for (size_t i = 0; i < decisions_.size(); ++i) {
    if (!is_taken_back_[i]) report.push_back(decisions_[i]);
  }
  return report;
}

}  // namespace ipex::passes
