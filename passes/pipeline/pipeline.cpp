#include "pipeline/pipeline.h"

#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "pattern/fusion_rule.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

// Passes in order. Those of a phase `until_stable` take turns until none of them finds anything more to do.
struct Phase {
  std::vector<Pass> passes;
  bool until_stable = false;
};

std::vector<Pass> fusions() {
  // A pair of casts hides what follows, and in-place ops, which keep it from folding, get fused: so among them.
  std::vector<Pass> passes{fold_casts()};
  for (const FusionRule& rule : fusion_rules()) {
    passes.push_back({rule.name(), [&rule](Context& context) { return rule.run(context); }});
  }
  return passes;
}

const std::vector<Phase>& phases() {
  static const std::vector<Phase> phases{
      // Canonicalize: one spelling for each op, so that the patterns below stay short.
      {{
          // Before all that looks for constant weights.
          read_rounding(),
          spell_out_encoder_layers(),
          simplify_sizes(),
          rename_synonyms(),
          // After both: of integers, and of transposes by their names.
          read_known_sizes(),
          // Dropout stands between ops that belong together, and hides that its result is its input: see aliasing.h.
          remove_dropout(),
          remove_in_place_activations(),
          // After them: neither dropout nor what overwrites is computed now, as in the tables of relative positions.
          share_subexpressions(),
          // Sizes that pieces are cut by are shared values by then.
          remove_idle_copies(),
          // Looks for constants, which views of parameters are by then.
          split_ternary(),
          simplify_transposes(),
          simplify_views(),
          // Sizes are numbers and shared values by then, and dropout, which may stand between a view and its reader, is gone.
          unbind_before_reshape(),
          // Sizes are shared values by then, and products have one name.
          split_sums(),
          remove_idle_slices(),
          remove_idle_conversions(),
          rewrite_as_linear(),
          // Of activations; with a constant matrix it is a linear by now.
          rewrite_einsum(),
          flatten_before_linear(),
          simplify_embedding_bag(),
          // After dropout is gone, which may stand inside a spelling; before the fusions, which know the ops only.
          rewrite_activation_spellings(),
          // Knows linears and activations by one name each.
          fuse_image_weights(),
          move_activations(),
          move_arithmetic(),
          rewrite_channel_mixing(),
      }},
      // Prepack before folding: constants fold into any packed op, whichever it is, and the packed op can carry the
      // condition under which the folding is right. Nothing is packed yet.
      {{prepack_convolution(), prepack_linear(), prepack_weight_only_linear(), prepack_lstm(), prepack_gru()}},
      // Before the fusions: a batch_norm that is folded no longer stands between a convolution and its relu.
      {{fold_padding()}},
      // Sums of convolutions after what is folded into their addends; a batch_norm of the sum is another round.
      {{fold_constants(), fold_batch_norm(), fold_convolution_sums(), spread_over_concatenation()},
       /*until_stable=*/true},
      // fuse_add_layer_norm before fuse_add: a packed op that took the addition would leave the norm to read the sum
      // once more. fuse_batch_norm takes those that were not folded,
      // and fuse_cat_batch_norm what it has made. lower_norms before the fusions, which append
      // post-ops to these norms, and before keep_channels_last, whose stretches go on through them.
      {{fuse_attention(), fuse_rms_norm(), fuse_add_layer_norm(), fuse_batch_norm(), fuse_cat_batch_norm(),
        lower_norms(), fuse_channel_shuffle(), fuse_sampled_sum(), fuse_rotary()}},
      // What is left of the products when attention has its own.
      {{prepack_matmul()}},
      // Post-ops are appended in the order of the graph: add then relu needs another round after the first add. The rules
      // are independent of one another (fusion_rule.h).
      {fusions(), /*until_stable=*/true},
      // After the fusions: whether a residual decides the layout depends on where it was added. A stream of tokens that
      // is made contiguous asks for no layout of the image that it comes from.
      {{separate_arithmetic(), keep_streams_contiguous(), keep_channels_last()}},
      // What the user asked for, after all folding in float32. It leaves pairs of casts between neighbours.
      {{split_layers(), observe(), quantize()}},
      {{lower_precision(), lower_attention(), fold_casts(), pin_math_mode(), quantize_linears(), quantize_recurrent(),
        quantize_embeddings()}},
      // After the fusions, and before chains are gathered: a chain that reads a mask is computed in each call.
      {{compute_once_per_shape()}},
      // What no packed op took. After the layouts are settled, for which it would be an op of many tensors; before
      // restore_in_place, as it takes what is out of place.
      // fuse_grid_mask before fuse_elementwise too, which would take the sum, and before join_rearrangements.
      {{fuse_gate(), fuse_grid_mask(), fuse_elementwise(), fuse_elementwise_sum(), fuse_elementwise_casts()}},
      // After all fusions, which know reshapes and permutations by their names; before restore_in_place, as a write sees
      // strides.
      // move_rows before join_rearrangements, which has no rolls and borders and takes what is left.
      {{move_rows(), join_rearrangements()}},
      // After the last fold_casts, which stops where anything is overwritten.
      // lower_ops: every pass before knows these ops by aten's names alone.
      {{restore_in_place(), lower_ops(), lay_out_upsample()}},
      {{pin_attention(), fuse_cached_attention()}},
      // carry_bytes knows our own max_pool2d, which takes 8-bit numbers.
      {{pad_bytes(), carry_bytes(), read_bytes()}},
      // What is left of norms and sums when 8-bit numbers have been carried through norms.
      {{fuse_norm_sum(), fuse_norm_casts()}},
      {{lay_out_elementwise()}},
      // After all that edits the nodes of a layer, its dtype and its math mode included.
      // prepack_grouped_linear as late: its layers have no run op of their own, which passes before would look for.
      // read_images_as_they_lie after all that looks for conversions, but for fold_computed_padding, which looks through them.
      {{read_images_as_they_lie(), fold_computed_padding(), rewrite_pad(), chain_linears(), join_linears(),
        chain_convolutions(), chain_excitations(), share_embedding_weight(), prepack_grouped_linear(),
        gather_selects()}},
      {{explain_leftovers()}},
  };
  return phases;
}

// IPEX_VERBOSE=1: a line per pass. 2: a line per decision too. 3: the graph after each pass that changed it.
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

bool run_one(const Pass& pass, const std::shared_ptr<Graph>& graph, const Options& options, Recorder& recorder) {
  if (std::count(options.disable.begin(), options.disable.end(), pass.name)) return false;
  Context context{graph, options, pass.name, recorder};
  const bool changed = pass.run(context);
  if (changed) torch::jit::EliminateDeadCode(graph);
  print(pass, recorder, changed ? graph.get() : nullptr);
  return changed;
}

}  // namespace

const std::vector<Pass>& pipeline() {
  static const std::vector<Pass> passes = [] {
    std::vector<Pass> all;
    for (const Phase& phase : phases()) {
      for (const Pass& pass : phase.passes) {
        const bool is_known = std::any_of(all.begin(), all.end(), [&](const Pass& p) { return p.name == pass.name; });
        if (!is_known) all.push_back(pass);
      }
    }
    return all;
  }();
  return passes;
}

Report optimize(const std::shared_ptr<Graph>& graph, const std::string& method, const Options& options) {
  for (const std::string& name : options.disable) {
    const bool is_pass =
        std::any_of(pipeline().begin(), pipeline().end(), [&](const Pass& p) { return p.name == name; });
    TORCH_CHECK(is_pass || is_op_of_lowering(name), "ipex.jit_optimize: expected the name of a pass in disable, got '",
                name, "'. `python -m ipex --passes` lists them.");
  }
  Recorder recorder(method);
  for (const Phase& phase : phases()) {
    bool changed = false;
    do {
      changed = false;
      for (const Pass& pass : phase.passes) changed |= run_one(pass, graph, options, recorder);
    } while (changed && phase.until_stable);
  }
  return recorder.report();
}

}  // namespace ipex::passes
