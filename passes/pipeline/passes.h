// The procedural passes, by phase. phases.cpp puts them in order; fusion rules register themselves (fusion_rule.h).
#pragma once

#include "pipeline/invariants.h"
#include "pipeline/pass.h"

namespace ipex::passes {

// canonical
Pass hold_changing_lists();
Pass read_rounding();
Pass spell_out_encoder_layers();
Pass simplify_sizes();
Pass rename_synonyms();
Pass read_known_sizes();
Pass remove_aliases();
Pass remove_dropout();
Pass remove_in_place_activations();
Pass share_subexpressions();

// simplify
Pass remove_idle_copies();
Pass split_ternary();
Pass simplify_transposes();
Pass simplify_views();
Pass unbind_before_reshape();
Pass split_sums();
Pass remove_idle_slices();
Pass remove_idle_conversions();

// recognize
Pass rewrite_as_linear();
Pass rewrite_einsum();
Pass flatten_before_linear();
Pass simplify_embedding_bag();
Pass rewrite_activation_spellings();
Pass fuse_image_weights();
Pass move_activations();
Pass move_arithmetic();
Pass rewrite_channel_mixing();

// anchor
Pass prepack_convolution();
Pass prepack_linear();
Pass prepack_weight_only_linear();
Pass prepack_lstm();
Pass prepack_gru();
Pass fold_padding();
Pass fold_constants();
Pass fold_batch_norm();
Pass fold_convolution_sums();
Pass spread_over_concatenation();

// compose
Pass fuse_attention();
Pass fuse_rms_norm();
Pass fuse_add_norm();
Pass fuse_batch_norm();
Pass fuse_cat_batch_norm();
Pass lower_norms();
Pass fuse_channel_shuffle();
Pass fuse_sampled_sum();
Pass fuse_rotary();

// epilogue
Pass prepack_matmul();
Pass fold_casts();

// layout
Pass separate_arithmetic();
Pass keep_streams_contiguous();
Pass keep_channels_last();

// precision
Pass split_layers();
Pass observe();
Pass quantize();
Pass lower_precision();
Pass lower_attention();
Pass pin_math_mode();
Pass quantize_linears();
Pass quantize_recurrent();
Pass quantize_embeddings();

// chains
Pass compute_once_per_shape();
Pass fuse_gate();
Pass fuse_grid_mask();
Pass fuse_elementwise();
Pass fuse_elementwise_sum();
Pass fuse_casts();

// rearrange
Pass move_rows();
Pass join_rearrangements();

// lower
Pass restore_in_place();
Pass lower_ops();
Pass lay_out_upsample();
Pass pin_attention();
Pass fuse_cached_attention();
Pass pad_bytes();
Pass carry_bytes();
Pass read_bytes();
Pass fuse_norm_sum();
Pass lay_out_elementwise();

// pack
Pass read_images_as_they_lie();
Pass fold_computed_padding();
Pass rewrite_pad();
Pass chain_linears();
Pass join_linears();
Pass chain_convolutions();
Pass chain_excitations();
Pass share_embedding_weight();
Pass prepack_grouped_linear();
Pass gather_selects();

// report
Pass explain_leftovers();

}  // namespace ipex::passes
