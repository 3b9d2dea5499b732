// What every pass sees and answers.
#pragma once

#include <ipex/report.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <string>

namespace ipex::passes {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Symbol;
using torch::jit::Use;
using torch::jit::Value;

// Collects decisions while the passes run.
class Recorder {
 public:
  explicit Recorder(std::string pass, Report& report) : pass_(std::move(pass)), report_(report) {}

  // Takes back what an earlier pass or round declined about this node.
  void applied(const Node* node, const std::string& what);
  void declined(const Node* node, const std::string& reason);

 private:
  void record(Decision decision);

  std::string pass_;
  Report& report_;
};

struct Pass {
  std::string name;
  // True when the graph changed. Declining comes before the first edit, and is recorded.
  std::function<bool(const std::shared_ptr<Graph>&, Recorder&)> run;
};

// "aten::relu".
inline std::string kind_of(const Node* node) { return node->kind().toQualString(); }

inline bool has_tensor_type(const Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

// "aten::relu in layer1.0.relu (%input.5)", or with the line of the user's source where there is no scope.
std::string describe(const Node* node);

}  // namespace ipex::passes
