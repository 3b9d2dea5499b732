#include "pipeline/phases.h"

#include "pattern/fusion_rule.h"
#include "pipeline/passes.h"

namespace ipex::passes {
namespace {

std::vector<Pass> epilogues() {
  // A pair of casts hides what follows, and in-place ops, which keep it from folding, get fused: so among them.
  std::vector<Pass> passes{fold_casts()};
  for (const FusionRule& rule : fusion_rules()) passes.push_back(rule.pass());
  return passes;
}

Phase canonical() {
  return {"canonical",
          {{{remove_aliases(), hold_changing_lists(), read_rounding(), spell_out_encoder_layers(), simplify_sizes(),
             rename_synonyms(), read_known_sizes(), remove_dropout(), remove_in_place_activations(),
             // What is still overwritten, as tables of relative positions are, isn't computed now.
             share_subexpressions()}}}};
}

Phase simplify() {
  return {"simplify",
          {{{remove_idle_copies(), split_ternary(), simplify_transposes(), simplify_views(), unbind_before_reshape(),
             split_sums(), remove_idle_slices(), remove_idle_conversions()}}}};
}

Phase recognize() {
  return {"recognize",
          {{{rewrite_as_linear(), rewrite_einsum(), flatten_before_linear(), simplify_embedding_bag(),
             rewrite_activation_spellings(), fuse_image_weights(),
             // Activations that were written out are ops by now.
             move_activations(), move_arithmetic(), rewrite_channel_mixing()}}}};
}

// Constants fold into any anchor, whichever it is, and it can carry the condition under which that is right. Nothing is
// packed yet. A batch_norm that is folded no longer stands between a convolution and its relu: so before the epilogues.
Phase anchor() {
  return {"anchor",
          {{{prepack_convolution(), prepack_linear(), prepack_weight_only_linear(), prepack_lstm(), prepack_gru(),
             fold_padding()}},
           // A batch_norm of a sum of convolutions is another round.
           {{fold_constants(), fold_batch_norm(), fold_convolution_sums(), spread_over_concatenation()},
            /*is_fixpoint=*/true}}};
}

// Before the epilogues: an anchor that took the addition would leave a norm to read the sum once more.
Phase compose() {
  return {"compose",
          {{{fuse_attention(), fuse_rms_norm(), fuse_add_norm(), fuse_batch_norm(),
             // Takes the batch_norms that the pass before has made.
             fuse_cat_batch_norm(), lower_norms(), fuse_channel_shuffle(), fuse_sampled_sum(), fuse_rotary()}}}};
}

Phase epilogue() {
  return {"epilogue",
          {// What is left of the products when attention has its own.
           {{prepack_matmul()}},
           // Post-ops are appended in the order of the graph: add then relu needs another round after the first add.
           {epilogues(), /*is_fixpoint=*/true}}};
}

// Whether a residual decides the layout depends on where it was added: so after the epilogues.
Phase layout() { return {"layout", {{{separate_arithmetic(), keep_streams_contiguous(), keep_channels_last()}}}}; }

// What the user asked for, after all folding in float32. It leaves pairs of casts between neighbours, which fold.
Phase precision() {
  return {"precision",
          {{{split_layers(), observe(), quantize(), lower_precision(), lower_attention(), fold_casts(), pin_math_mode(),
             quantize_linears(), quantize_recurrent(), quantize_embeddings()}}}};
}

// What no anchor took, once the layouts are settled, for which a chain would be an op of many tensors. A chain that reads a
// mask is computed in each call: so first what depends on shapes only.
Phase chains() {
  return {"chains",
          {{{compute_once_per_shape(), fuse_gate(), fuse_grid_mask(), fuse_elementwise(), fuse_elementwise_sum(),
             fuse_casts()}}}};
}

// After all that knows reshapes and permutations by their names, and before anything is in place again: a write sees strides.
Phase rearrange() { return {"rearrange", {{{move_rows(), join_rearrangements()}}}}; }

Phase lower() {
  return {"lower",
          {{{restore_in_place(), lower_ops(), lay_out_upsample(), pin_attention(), fuse_cached_attention(), pad_bytes(),
             carry_bytes(), read_bytes(),
             // What is left of norms and sums, and the last form of a chain, when 8-bit numbers have gone through them.
             fuse_norm_sum(), fuse_casts(), lay_out_elementwise()}}}};
}

// After all that edits a layer, its dtype and its math mode included.
Phase pack() {
  return {"pack",
          {{{read_images_as_they_lie(), fold_computed_padding(), rewrite_pad(), chain_linears(), join_linears(),
             chain_convolutions(), chain_excitations(),
             // A layer that is in a chain keeps its weight to itself.
             share_embedding_weight(), prepack_grouped_linear(), gather_selects()}}}};
}

// Reasons for what no pass has looked at.
Phase report() { return {"report", {{{explain_leftovers()}}}}; }

}  // namespace

const std::vector<Phase>& phases() {
  static const std::vector<Phase> all{canonical(), simplify(), recognize(), anchor(), compose(), epilogue(), layout(),
                                      precision(), chains(),   rearrange(), lower(),  pack(),    report()};
  return all;
}

}  // namespace ipex::passes
