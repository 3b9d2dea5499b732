#include "pipeline/pipeline.h"

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <random>

#include "lower/lower_ops.h"
#include "pipeline/dead_code.h"
#include "pipeline/order.h"
#include "pipeline/phases.h"
#include "pipeline/verifier.h"

namespace ipex::passes {
namespace {

// IPEX_VERBOSE=1: a line per phase, and one for each of its passes. 2: a line per decision too. 3: the graph after each pass
// that changed it.
int verbosity() {
  const char* level = std::getenv("IPEX_VERBOSE");
  return level ? std::atoi(level) : 0;
}

void print(const Pass& pass, const Recorder& recorder, const Graph* changed) {
  const int level = verbosity();
  if (level < 1) return;
  Report own = recorder.report();
  std::erase_if(own, [&](const Decision& d) { return d.pass != pass.name; });
  const auto applied = std::count_if(own.begin(), own.end(), [](const Decision& d) { return d.applied; });
  std::cerr << "ipex,pass," << pass.name << ",applied=" << applied
            << ",declined=" << own.size() - static_cast<size_t>(applied) << '\n';
  for (size_t i = 0; level >= 2 && i < own.size(); ++i) {
    std::cerr << "ipex," << (own[i].applied ? "applied," : "declined,") << own[i].pass << ',' << own[i].node << ','
              << own[i].reason << '\n';
  }
  if (level >= 3 && changed) std::cerr << *changed;
}

// IPEX_SHUFFLE=SEED: the passes of a step run in an order drawn from those that their contracts allow.
std::optional<std::mt19937> dice_asked_for() {
  const char* seed = std::getenv("IPEX_SHUFFLE");
  return seed ? std::optional(std::mt19937(static_cast<unsigned>(std::atoi(seed)))) : std::nullopt;
}

// A graph on its way through the phases.
class Run {
 public:
  Run(const std::shared_ptr<Graph>& graph, const std::string& method, const Options& options)
      : graph_(graph),
        options_(options),
        recorder_(method),
        verifier_(graph, options.disable.empty()),
        dice_(dice_asked_for()) {}

  void run(const Phase& phase) {
    if (verbosity() >= 1) std::cerr << "ipex,phase," << phase.name << '\n';
    for (const Step& step : phase.steps) {
      while (run(step) && step.is_fixpoint) {
      }
    }
  }

  Report report() const { return recorder_.report(); }

 private:
  // Whether anything changed.
  bool run(const Step& step) {
    bool changed = false;
    const auto in_order = dice_ ? std::optional(shuffled(step.passes, *dice_)) : std::nullopt;
    for (const Pass& pass : in_order ? *in_order : step.passes) changed |= run(pass);
    return changed;
  }

  bool run(const Pass& pass) {
    if (!pass.is_needed && std::count(options_.disable.begin(), options_.disable.end(), pass.name)) return false;
    Context context{graph_, options_, pass, recorder_};
    const bool changed = pass.run(context);
    if (changed) {
      verifier_.check_nodes(pass);
      remove_dead_code(graph_);
    }
    print(pass, recorder_, changed ? graph_.get() : nullptr);
    verifier_.check_invariants(pass, changed);
    return changed;
  }

  std::shared_ptr<Graph> graph_;
  const Options& options_;
  Recorder recorder_;
  Verifier verifier_;
  std::optional<std::mt19937> dice_;
};

std::vector<Pass> flattened() {
  std::vector<Pass> all;
  for (const Phase& phase : phases()) {
    for (const Step& step : phase.steps) all.insert(all.end(), step.passes.begin(), step.passes.end());
  }
  const auto reason = reason_against_order(all);
  TORCH_INTERNAL_ASSERT(!reason, *reason);
  return all;
}

void check(const Options& options) {
  for (const std::string& name : options.disable) {
    const bool is_pass =
        std::any_of(pipeline().begin(), pipeline().end(), [&](const Pass& p) { return p.name == name; });
    TORCH_CHECK(is_pass || is_op_of_lowering(name), "ipex.jit_optimize: expected the name of a pass in disable, got '",
                name, "'. `python -m ipex --passes` lists them.");
  }
  const bool is_phase = std::any_of(phases().begin(), phases().end(),
                                    [&](const Phase& phase) { return phase.name == options.stop_after; });
  TORCH_CHECK(options.stop_after.empty() || is_phase,
              "ipex.jit_optimize: expected the name of a phase in stop_after, got '", options.stop_after,
              "'. IPEX_VERBOSE=1 prints them.");
}

}  // namespace

const std::vector<Pass>& pipeline() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> once;
    for (Pass& pass : flattened()) {
      const bool is_known = std::any_of(once.begin(), once.end(), [&](const Pass& p) { return p.name == pass.name; });
      if (!is_known) once.push_back(std::move(pass));
    }
    return once;
  }();
  return passes;
}

Report optimize(const std::shared_ptr<Graph>& graph, const std::string& method, const Options& options) {
  check(options);
  Run run(graph, method, options);
  bool has_stopped = false;
  for (const Phase& phase : phases()) {
    // What is left gets its reasons all the same.
    if (!has_stopped || &phase == &phases().back()) run.run(phase);
    has_stopped |= phase.name == options.stop_after;
  }
  return run.report();
}

}  // namespace ipex::passes
