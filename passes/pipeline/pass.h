// What every pass sees and answers.
#pragma once

#include <ipex/jit_optimize.h>
#include <ipex/report.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ipex::passes {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Symbol;
using torch::jit::Use;
using torch::jit::Value;

struct Invariant;
struct Pass;

// Collects what all passes decide about the graph of one method.
class Recorder {
 public:
  explicit Recorder(std::string method) : method_(std::move(method)) {}

  // Takes back what an earlier pass or round declined about this node, unless its reasons stay. `into`: as in Decision.
  void applied(const Pass& pass, const Node* node, const std::string& what, const Node* into);
  void declined(const Pass& pass, const Node* node, const std::string& reason);

  Report report() const;
  const std::string& method() const { return method_; }

 private:
  void record(Decision decision, bool stays);

  std::string method_;
  std::vector<Decision> decisions_;
  std::vector<bool> stays_, is_taken_back_;
  // The decisions about a node, by what it is called.
  std::unordered_map<std::string, std::vector<size_t>> about_;
};

// What a pass works on. What ops are is no part of it: ops/op_table.h says the same to every pass.
struct Context {
  std::shared_ptr<Graph> graph;
  const Options& options;
  const Pass& pass;
  Recorder& recorder;

  void applied(const Node* node, const std::string& what) { recorder.applied(pass, node, what, nullptr); }
  // Another node stands for it now: `what` is "folded into ", say.
  void merged(const Node* node, const std::string& what, const Node* into) {
    recorder.applied(pass, node, what + into->kind().toQualString(), into);
  }
  void became(const Node* node, const std::string& what) { recorder.applied(pass, node, "became " + what, node); }
  void declined(const Node* node, const std::string& reason) { recorder.declined(pass, node, reason); }
};

// Where a pass may stand, by the invariants that it has to do with (invariants.h).
struct Contract {
  std::vector<const Invariant*> needed = {}, established = {}, broken = {};
};

struct Pass {
  std::string name;
  // True when the graph changed. Declining comes before the first edit, and is recorded.
  std::function<bool(Context&)> run;
  Contract contract = {};
  // Whether its reasons for declining a node stay in the report, whatever another pass makes of the node.
  bool reasons_stay = false;
  // Others take the graph for what it is not without it: it runs whatever is disabled.
  bool is_needed = false;
};

// "aten::relu".
inline std::string kind_of(const Node* node) { return node->kind().toQualString(); }

inline bool has_tensor_type(const Value* value) { return value->type()->isSubtypeOf(*c10::TensorType::get()); }

// "layer1.0.relu", the module that the user wrote. Empty where that is not known.
std::string module_path_of(const Node* node);
// Whether that is one of these modules, or lies in one.
bool is_in_one_of(const Node* node, const std::vector<std::string>& modules);

// "aten::relu in layer1.0.relu (%input.5)", or with the line of the user's source where there is no scope.
std::string describe(const Node* node);

}  // namespace ipex::passes
