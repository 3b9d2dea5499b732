// The procedural passes, by phase. pipeline.cpp puts them in order; fusions register themselves (fusion_rule.h).
#pragma once

#include "pipeline/pass.h"

namespace ipex::passes {

// canonicalize
Pass read_rounding();
Pass spell_out_encoder_layers();
Pass rename_synonyms();
Pass share_subexpressions();
Pass simplify_sizes();
Pass read_known_sizes();
Pass split_ternary();
Pass rewrite_as_linear();
Pass rewrite_einsum();
Pass flatten_before_linear();
Pass remove_in_place_activations();
Pass simplify_embedding_bag();
Pass rewrite_activation_spellings();
Pass move_activations();
Pass move_arithmetic();
Pass unbind_before_reshape();
Pass split_sums();

// prepack
Pass prepack_convolution();
Pass prepack_linear();
Pass prepack_weight_only_linear();
Pass prepack_matmul();
Pass prepack_lstm();
Pass prepack_gru();

// fold
Pass remove_dropout();
Pass simplify_transposes();
Pass remove_idle_copies();
Pass remove_idle_slices();
Pass simplify_views();
Pass remove_idle_conversions();
Pass fold_padding();
Pass fold_constants();
Pass fold_batch_norm();
Pass fold_convolution_sums();
Pass spread_over_concatenation();
Pass fold_casts();

// fusions that are more than a post-op
Pass fuse_attention();
Pass fuse_add_layer_norm();
Pass fuse_rms_norm();
Pass fuse_sampled_sum();
Pass fuse_channel_shuffle();
Pass fuse_batch_norm();
Pass fuse_cat_batch_norm();
Pass fuse_elementwise();
Pass fuse_elementwise_casts();
Pass gather_selects();
Pass fuse_norm_casts();
Pass fuse_elementwise_sum();
Pass fuse_gate();
Pass fuse_grid_mask();
Pass fuse_image_weights();
Pass fuse_norm_sum();
Pass fuse_cached_attention();
Pass rewrite_channel_mixing();
Pass fuse_rotary();

// lower
Pass lower_norms();
Pass lower_ops();
Pass lay_out_upsample();
// Whether one of the first two makes the op, so that `Options::disable` may name it.
bool is_op_of_lowering(const std::string& name);

// layout
Pass separate_arithmetic();
Pass keep_streams_contiguous();
Pass keep_channels_last();
Pass read_images_as_they_lie();
Pass move_rows();
Pass join_rearrangements();

// quantization
Pass observe();
Pass quantize();
Pass split_layers();
Pass pad_bytes();
Pass carry_bytes();
Pass read_bytes();
Pass quantize_linears();
Pass quantize_recurrent();
Pass quantize_embeddings();

// finalize
Pass lay_out_elementwise();
Pass lower_precision();
Pass lower_attention();
Pass pin_attention();
Pass pin_math_mode();
Pass restore_in_place();
Pass fold_computed_padding();
Pass rewrite_pad();
Pass chain_convolutions();
Pass chain_excitations();
Pass chain_linears();
Pass join_linears();
Pass prepack_grouped_linear();
Pass share_embedding_weight();
Pass compute_once_per_shape();
Pass explain_leftovers();

}  // namespace ipex::passes
