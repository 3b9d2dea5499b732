#include "ops/op_table.h"

#include <ipex/post_ops.h>

#include <algorithm>
#include <unordered_map>

#include "ir/reading.h"

namespace ipex::passes {
namespace {

using namespace trait;
using enum Memory;

// Why an op is left to aten, where no pass has a more particular reason.
constexpr const char* no_prepacked_form = "no prepacked form";
constexpr const char* not_taken = "no packed op could take it";
constexpr const char* fused_by_aten = "aten's own kernel is fused already";
constexpr const char* not_foldable = "its statistics can't be folded into a weight";
constexpr const char* quantised_by_torch = "torch's quantised tensors have no packed ops";
constexpr const char* alone = "nothing to fuse it with";

// What a dtype, a layout and the like say of a fresh result, an op in place has no use for.
constexpr Traits of_fresh_results = elementwise | chooses | promotes | any_layout | gives_bools;

// Where run ops have what passes edit.
constexpr PackedForm with_operands{}, of_a_chain{.operands = -1, .eager_layout = -1},
    of_a_group{.context = 2, .operands = -1, .eager_layout = -1},
    after_a_state{.context = 2, .operands = -1, .eager_layout = -1},
    after_two_states{.context = 3, .operands = -1, .eager_layout = -1};

class Table {
 public:
  // Overloads as torch prints them, separated by spaces: "relu add.Tensor". Of aten, where nothing else stands there.
  Table& ops(const std::string& overloads, Memory memory, Traits traits = trait::none) {
    begin_ = rows_.size();
    std::istringstream words = reading(overloads);
    for (std::string word; words >> word;) add(word, memory, traits);
    return *this;
  }

  // The same and, for "add.Tensor", "add_.Tensor", whose result is its first input.
  Table& with_in_place(const std::string& overloads, Memory memory, Traits traits = trait::none) {
    ops(overloads, memory, traits);
    const size_t end = rows_.size();
    for (size_t i = begin_; i < end; ++i) {
      Op row = rows_[i];
      row.name += '_';
      row.memory = itself;
      row.writes = Writes::elements;
      row.traits = (traits & ~of_fresh_results) | keeps_dtype;
      rows_.push_back(std::move(row));
    }
    return *this;
  }

  // ipex::NAME_prepack and ipex::NAME_run.
  Table& packed(const std::string& name, const PackedForm& form, const std::string& overload = "") {
    ops("ipex::" + name + "_prepack" + overload, no_tensor, makes_context);
    ops("ipex::" + name + "_run" + overload, fresh, floating);
    rows_.back().packed = &form;
    return *this;
  }

  // The following are about the rows added last.
  Table& weight(int input) {
    return each([=](Op& row) { row.weight = input; });
  }
  Table& left(const char* reason) {
    return each([=](Op& row) { row.left = reason; });
  }
  Table& writes(Writes what) {
    return each([=](Op& row) { row.writes = what; });
  }
  Table& also(Traits traits) {
    return each([=](Op& row) { row.traits |= traits; });
  }
  Table& without(Traits traits) {
    return each([=](Op& row) { row.traits &= ~traits; });
  }

  bool has(const std::string& name) const {
    return std::any_of(rows_.begin(), rows_.end(), [&](const Op& row) { return row.name == name; });
  }

  std::vector<Op> take() { return std::move(rows_); }

 private:
  void add(const std::string& word, Memory memory, Traits traits) {
    const size_t dot = word.find('.');
    const std::string overload = dot == std::string::npos ? "" : word.substr(dot + 1);
    const std::string prefix = word.find("::") == std::string::npos ? "aten::" : "";
    rows_.push_back({.name = prefix + word.substr(0, dot), .overload = overload, .memory = memory, .traits = traits});
  }

  template <typename Edit>
  Table& each(Edit&& edit) {
    for (size_t i = begin_; i < rows_.size(); ++i) edit(rows_[i]);
    return *this;
  }

  std::vector<Op> rows_;
  size_t begin_ = 0;
};

// Add a row where a pass, a pattern or the fuzzer needs to know an op. Without one, an op of torch's is believed to write
// what its schema says, and its result may be anything's alias (aliasing.h); any other op may do anything.
std::vector<Op> rows() {
  Table table;

  // One tensor, element by element.
  table.with_in_place("relu", fresh, elementwise | chooses | keeps_dtype | any_layout).left(not_taken);
  table.with_in_place("abs neg", fresh, elementwise | chooses | any_layout).left(not_taken);
  table.ops("ipex::erf_gelu", fresh, elementwise | keeps_dtype | any_layout);
  table.with_in_place("erf", fresh, elementwise | keeps_dtype | any_layout).left(not_taken);
  table
      .with_in_place("exp log sqrt rsqrt square round round.decimals clamp_min clamp_max", fresh,
                     elementwise | any_layout)
      .left(not_taken);
  table.ops("pow.Tensor_Scalar", fresh, elementwise | any_layout).left(not_taken);
  table.with_in_place("clamp", fresh, elementwise | any_layout).left(not_taken);
  table.with_in_place(
      "reciprocal sin cos tan floor ceil trunc frac sign log2 log10 log1p expm1 exp2 erfc sinh cosh asin acos atan "
      "bitwise_not nan_to_num",
      fresh, elementwise);
  table.with_in_place("logical_not", fresh, elementwise | gives_bools);
  table.ops("isnan isinf isfinite", fresh, elementwise | gives_bools);
  table.ops("prelu", fresh, keeps_dtype | any_layout).left(not_taken);
  table.ops("glu", fresh, keeps_dtype);

  table.ops("fake_quantize_per_tensor_affine", fresh, elementwise | keeps_dtype | any_layout);
  table.ops("fake_quantize_per_tensor_affine.tensor_qparams fake_quantize_per_channel_affine", fresh);
  table.ops("quantize_per_tensor quantize_per_tensor.tensor_qparams", fresh).left(quantised_by_torch);
  // Of floats it is its input.
  table.ops("dequantize.self", maybe_view).left(quantised_by_torch);

  // Several tensors, element by element.
  table
      .with_in_place("add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar", fresh,
                     promotes | any_layout)
      .left(not_taken);
  table.with_in_place("div.Tensor_mode div.Scalar_mode", fresh, any_layout).left(not_taken);
  table.ops("rsub.Tensor rsub.Scalar", fresh, promotes).left(not_taken);
  table.ops("maximum minimum", fresh, any_layout).left(not_taken);
  table.ops("max.other min.other", fresh).left(not_taken);
  table.ops("pow.Tensor_Tensor pow.Scalar", fresh).left(not_taken);
  table.with_in_place("clamp.Tensor clamp_min.Tensor clamp_max.Tensor", fresh).left(not_taken);
  table.with_in_place("masked_fill.Scalar masked_fill.Tensor", fresh).left(not_taken);
  table.ops("where.self where.ScalarOther where.ScalarSelf where.Scalar", fresh).left(not_taken);
  table.with_in_place(
      "eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor "
      "ge.Scalar logical_and logical_or logical_xor",
      fresh, gives_bools);
  table.with_in_place(
      "bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor bitwise_and.Scalar bitwise_or.Scalar remainder.Tensor "
      "remainder.Scalar atan2 lerp.Scalar lerp.Tensor addcmul addcdiv fmod.Tensor fmod.Scalar",
      fresh);

  table.ops("floor_divide floor_divide.Scalar __and__.Tensor __or__.Tensor __xor__.Tensor", fresh);

  // Products.
  table.ops("linear", fresh, hides_strides).weight(1).left(no_prepacked_form);
  table.ops("addmm", fresh).weight(2).left(no_prepacked_form);
  table.ops("matmul", fresh, multiplies).weight(1).left(no_prepacked_form);
  table.ops("mm", fresh).weight(1).left(no_prepacked_form);
  table.ops("bmm", fresh, multiplies).left(no_prepacked_form);
  table.ops("_grouped_mm", fresh).weight(1).left(no_prepacked_form);
  table.ops("baddbmm addbmm mv addmv dot tensordot bilinear", fresh).left(no_prepacked_form);
  // Sums nothing, it may give its input back.
  table.ops("einsum", maybe_view).left(no_prepacked_form);
  table.ops("conv1d conv2d conv3d _convolution conv_transpose2d.input", fresh, convolves)
      .weight(1)
      .left(no_prepacked_form);
  table
      .ops(
          "conv_transpose1d conv_transpose3d.input convolution _convolution_mode conv1d.padding conv2d.padding "
          "conv3d.padding _convolution.deprecated",
          fresh, convolves)
      .left(no_prepacked_form);
  table.ops("conv_tbc", fresh).left(no_prepacked_form);
  table.ops("lstm.input gru.input lstm.data gru.data", fresh);
  table.ops("rnn_tanh.input rnn_relu.input", fresh).left(no_prepacked_form);
  table.ops("scaled_dot_product_attention", fresh).left(alone);
  table.ops("_native_multi_head_attention _transformer_encoder_layer_fwd", fresh).left(fused_by_aten);

  // Norms.
  table.ops("batch_norm", fresh, keeps_dtype | any_layout | writes_in_training).weight(3).left(not_foldable);
  table.ops("layer_norm", fresh, keeps_dtype | hides_strides | normalizes_rows).weight(2).left(not_foldable);
  // aten's loses digits of channels-last images: it gets none that are not so in eager.
  table.ops("group_norm", fresh, keeps_dtype).weight(2).left(not_foldable);
  table.ops("native_layer_norm native_group_norm rms_norm", fresh).left(not_foldable);
  table.ops("instance_norm", fresh, writes_in_training).left(not_foldable);
  table.ops("softmax.int _softmax log_softmax.int", fresh).left(alone);

  // Pools, and images made larger or smaller.
  table.ops("max_pool2d", fresh, chooses | keeps_dtype | any_layout).left(alone);
  table.ops("max_pool3d", fresh, chooses | any_layout).left(alone);
  table.ops("max_pool1d", fresh, chooses).left(alone);
  table.ops("avg_pool2d adaptive_avg_pool2d", fresh, keeps_dtype | any_layout).left(alone);
  table
      .ops(
          "avg_pool3d upsample_nearest2d upsample_nearest2d.vec upsample_bilinear2d upsample_bilinear2d.vec "
          "upsample_bicubic2d upsample_bicubic2d.vec",
          fresh, any_layout)
      .left(alone);
  table.ops("avg_pool1d adaptive_avg_pool1d adaptive_avg_pool3d adaptive_max_pool2d", fresh).left(alone);
  table.ops("constant_pad_nd", fresh, any_layout).left(alone);
  table.ops("pad", fresh, reads_any_layout).left(alone);
  table.ops("channel_shuffle", maybe_view, any_layout);

  // Reductions.
  table.ops("mean.dim", fresh, any_layout | hides_strides).left(not_taken);
  table.ops("mean sum sum.dim_IntList", fresh, hides_strides | reads_any_layout).left(not_taken);
  table.ops("linalg_vector_norm norm.ScalarOpt_dim amax amin", fresh, any_layout | hides_strides);
  table.ops("cumsum", fresh).left(alone);
  table.ops(
      "max min max.dim min.dim argmax argmin prod prod.dim_int var var.dim var.correction std std.dim "
      "std.correction var_mean.correction norm.Scalar any any.dim all all.dim "
      "logsumexp topk sort",
      fresh);

  // Joined, chosen, looked up.
  table.ops("cat", fresh, chooses | joins | any_layout).left(alone);
  table.ops("concat concatenate", fresh, joins);
  table.ops("stack", fresh);
  table.ops("embedding", fresh).weight(0).left(alone);
  table.ops("embedding_bag embedding_bag.padding_idx", fresh);
  table.ops(
      "index_select gather index.Tensor take_along_dim roll flip tril triu repeat tile repeat_interleave.self_int "
      "repeat_interleave.self_Tensor one_hot masked_select nonzero bucketize.Tensor scatter.src scatter.value "
      "scatter_add index_add index_copy index_put cdist outer cross native_dropout",
      fresh);
  table.ops("im2col col2im", fresh, hides_strides | reads_any_layout);
  table.ops("grid_sampler", fresh, hides_strides).left(alone);
  table.ops("clone", fresh, keeps_dtype);
  table.ops("rand_like randn_like", fresh, needs_strides);
  table.ops(
      "arange arange.start arange.start_step zeros ones full empty.memory_format zeros_like ones_like full_like "
      "empty_like linspace eye rand randn tensor "
      "tensor.float tensor.int tensor.bool scalar_tensor prim::NumToTensor.Scalar _shape_as_tensor",
      fresh);
  // Of its sizes and dtype, whatever strides the tensor has.
  table.ops("new_zeros new_ones new_full new_empty", fresh, hides_strides);

  // Views.
  table.ops("view", view, chooses | keeps_dtype | keeps_contiguous | reshapes | needs_strides);
  table.ops("unsqueeze squeeze squeeze.dim squeeze.dims", view, chooses | keeps_dtype | keeps_contiguous | reshapes);
  table.ops("unflatten.int", view, reshapes);
  table.ops("transpose.int permute", view, chooses | keeps_dtype | moves_dimensions);
  table.ops("t", view);
  table.ops("slice.Tensor", view, keeps_dtype | cuts);
  table.ops("narrow", view, cuts);
  table.ops("select.int", view, keeps_dtype);
  table.ops("expand", view, keeps_dtype | trait::overlaps);
  table.ops("split.Tensor split.sizes split_with_sizes chunk", view, slices | keeps_dtype);
  table.ops(
      "unbind.int diagonal alias detach movedim.int movedim.intlist swapaxes swapdims "
      "tensor_split.sections real imag",
      view);
  table.ops("unfold", view, trait::overlaps);
  table.ops("expand_as", view, takes_sizes_of_second | trait::overlaps);
  table.ops("view_as", view, needs_strides | takes_sizes_of_second);
  table.ops("reshape_as", maybe_view, takes_sizes_of_second);
  table.ops("view.dtype view_as_real view_as_complex", view, needs_strides);
  table.ops("as_strided", view, needs_strides | trait::overlaps);
  table.ops("reshape flatten.using_ints", maybe_view, chooses | keeps_dtype | keeps_contiguous | reshapes);
  table.ops("contiguous", maybe_view, chooses | keeps_dtype);
  table.ops(
      "to.dtype to.device to.other to.dtype_layout to.prim_dtype to.prim_Device to.prim_other type_as "
      "pixel_shuffle pixel_unshuffle numpy_T atleast_1d atleast_2d atleast_3d sum_to_size resolve_conj resolve_neg",
      maybe_view);
  table.ops("broadcast_tensors meshgrid meshgrid.indexing broadcast_to", maybe_view, trait::overlaps);
  table.ops("dropout feature_dropout", maybe_view, keeps_dtype | drops_out);
  table.ops("dropout_", itself, drops_out).writes(Writes::elements);

  // Writes that are no op's in-place form.
  table
      .ops("copy_ fill_.Scalar fill_.Tensor zero_ pow_.Scalar pow_.Tensor floor_divide_.Tensor floor_divide_.Scalar",
           itself)
      .writes(Writes::elements);
  table
      .ops(
          "index_put_ scatter_.src scatter_.value scatter_add_ index_add_ index_copy_ masked_scatter_ fill_diagonal_ "
          "normal_ uniform_",
          itself)
      .writes(Writes::elements);
  table
      .ops(
          "unsqueeze_ squeeze_ squeeze_.dim squeeze_.dims transpose_ t_ swapaxes_ swapdims_ resize_ resize_as_ "
          "as_strided_ detach_ set_ set_.source_Tensor",
          itself)
      .writes(Writes::shape);

  // What a tensor looks like, and numbers.
  table.ops("size size.int dim numel", no_tensor, trait::asks_for_sizes);
  table.ops(
      "prim::dtype prim::device prim::layout is_floating_point len.Tensor item Int.Tensor Float.Tensor Bool.Tensor "
      "IntImplicit FloatImplicit ScalarImplicit stride __isnot__ __is__ format",
      no_tensor);
  table.ops("profiler::_record_function_enter profiler::_record_function_exit", no_tensor);

  // Nodes without a schema, which hand their inputs on.
  table.ops(
      "prim::Constant prim::GetAttr prim::If prim::Loop prim::ListConstruct prim::TupleConstruct prim::TupleUnpack "
      "prim::TupleIndex prim::DictConstruct prim::unchecked_cast prim::Uninitialized prim::RaiseException "
      "prim::SetAttr",
      no_tensor, carries);
  table.ops("prim::ListUnpack", no_tensor, carries | keeps_dtype);

  // Ops of torchvision.
  table.ops(
      "torchvision::nms torchvision::roi_align torchvision::roi_pool torchvision::ps_roi_align "
      "torchvision::ps_roi_pool torchvision::deform_conv2d",
      fresh);

  // Ops of ours.
  table.packed("convolution", with_operands);
  table.ops("ipex::unpacked_convolution", fresh);
  table.ops("ipex::image_weights_convolution", fresh, any_layout | one_image);
  table.packed("linear", with_operands).also(hides_strides);
  table.packed("dynamic_linear", with_operands).also(float32_only);
  table.packed("weight_only_linear", with_operands).also(float32_only);
  table.ops(
      "ipex::weight_only_linear_prepack.codes ipex::weight_only_linear_prepack.again "
      "ipex::grouped_linear_prepack.again",
      no_tensor, makes_context);
  table.ops("ipex::weight_only_linear", fresh, float32_only);
  table.packed("matmul", with_operands).without(floating).also(multiplies | float32_only | reads_any_layout);
  table.packed("lstm", after_two_states).also(float32_only);
  table.packed("gru", after_a_state).also(float32_only);
  table.packed("dynamic_lstm", after_two_states).also(float32_only);
  table.packed("dynamic_gru", after_a_state).also(float32_only);
  table.packed("convolution_chain", of_a_chain);
  table.packed("excitation", of_a_chain);
  table.packed("linear_chain", of_a_chain);
  table.packed("joined_linears", of_a_chain).without(floating);
  table.packed("joined_linears", of_a_chain, ".codes").without(floating);
  table.packed("grouped_linear", of_a_group).also(float32_only);
  table.packed("grouped_linear", of_a_group, ".codes").also(float32_only);
  table.ops("ipex::grouped_weight_only_linear", fresh, float32_only);
  table.ops("ipex::attention", fresh, float32_only | reads_any_layout);
  table.ops("ipex::attention_in_a_grid ipex::shape_of_sum", fresh);
  table.ops("ipex::rms_norm ipex::rms_norm.of_sum", fresh, float32_only | normalizes_rows);
  table.ops("ipex::attention_of_bytes ipex::scaled_dot_product_attention_of_bytes", fresh);
  table.ops("ipex::layer_norm.of_sum", fresh, float32_only | hides_strides | normalizes_rows);
  table.ops("ipex::cat_batch_norm", fresh, any_layout);
  table.ops("ipex::batch_norm ipex::group_norm ipex::native_group_norm", fresh,
            keeps_dtype | any_layout | trait::takes_post_ops);
  table.ops("ipex::instance_norm", fresh, keeps_dtype | contiguous_in_eager | trait::takes_post_ops);
  table.ops("ipex::masked_fill_like", fresh, keeps_dtype).left(not_taken);
  table.ops("ipex::in_common_dtype", maybe_view);
  table.ops("ipex::add_like ipex::sub_like ipex::mul_like ipex::div_like", fresh, keeps_dtype | any_layout)
      .left(not_taken);
  table.ops("ipex::elementwise ipex::elementwise.several", fresh);
  table.ops("ipex::elementwise.sum", fresh, hides_strides);
  // As older files have them.
  table.ops(
      "ipex::elementwise.cast ipex::elementwise.bytes ipex::elementwise.of_bytes ipex::contiguous_elementwise "
      "ipex::sliced_elementwise ipex::elementwise_sum ipex::elementwise_sum.cast ipex::elementwise_mean "
      "ipex::elementwise_mean.cast ipex::layer_norm.bytes ipex::layer_norm.lowered ipex::layer_norm_to_rows "
      "ipex::layer_norm_to_rows.bytes ipex::layer_norm_to_rows.lowered ipex::layer_norm_of_rows "
      "ipex::layer_norm_of_rows.bytes ipex::layer_norm_of_rows.lowered ipex::add_layer_norm ipex::add_layer_norm.bytes "
      "ipex::add_layer_norm.lowered ipex::add_layer_norm_to_rows ipex::add_layer_norm_to_rows.bytes "
      "ipex::add_layer_norm_to_rows.lowered ipex::add_layer_norm_of_rows ipex::add_layer_norm_of_rows.bytes "
      "ipex::add_layer_norm_of_rows.lowered ipex::layer_norm_sum ipex::layer_norm_of_rows_sum ipex::rms_norm_sum "
      "ipex::cat_batch_norm.bytes ipex::attention_of_bytes.bytes ipex::scaled_dot_product_attention_of_bytes.bytes "
      "ipex::adaptive_avg_pool2d.of_bytes ipex::mean.of_bytes ipex::padded_convolution_run "
      "ipex::gated_convolution_run ipex::padded_quantized_convolution_run",
      fresh);
  table.ops("ipex::addmm", fresh).weight(2).left(no_prepacked_form);
  table.ops("ipex::cat", fresh, chooses | joins | any_layout);
  table.ops("ipex::roll", fresh);
  table.ops("ipex::new_full", fresh, keeps_dtype | hides_strides);
  table.ops("ipex::full_like", fresh, keeps_dtype);
  table.ops("ipex::pad", maybe_view, reads_any_layout);
  table.ops("ipex::max_pool2d", fresh, chooses | keeps_dtype | any_layout);
  table.ops("ipex::max_pool3d", fresh, chooses | any_layout);
  table.ops("ipex::avg_pool2d", fresh, keeps_dtype | any_layout);
  table.ops("ipex::avg_pool3d", fresh, keeps_contiguous);
  table.ops("ipex::avg_pool1d", fresh);
  table.ops("ipex::upsample_nearest2d ipex::upsample_bilinear2d ipex::upsample_bicubic2d", fresh, any_layout);
  table.ops("ipex::rotary ipex::rotary.partial ipex::rotary.behind", fresh);
  table.ops("ipex::sampled_sum", fresh, hides_strides);
  table.ops("ipex::adaptive_avg_pool2d", fresh, keeps_dtype | any_layout);
  table.ops("ipex::mean", fresh, keeps_dtype | any_layout | hides_strides);
  table.ops(
      "ipex::softmax ipex::log_softmax ipex::cached_attention ipex::cache_mask "
      "ipex::scaled_dot_product_attention "
      "ipex::embedding ipex::rows_of_codes ipex::embedding_bag ipex::embedding_in_int8 ipex::embedding_bag_in_int8 "
      "ipex::round_rows ipex::round_weight ipex::rows_by_expert ipex::sum_of_experts",
      fresh);
  table.ops("ipex::attend_cached ipex::attend_paged", fresh).writes(Writes::elements);
  table.ops("ipex::look_up", fresh).weight(0);
  table.ops("ipex::layer_norm", fresh, hides_strides | normalizes_rows);
  table.ops("ipex::vector_norm ipex::sum ipex::var ipex::std ipex::amax ipex::max_values", fresh,
            hides_strides | reads_any_layout);
  table.ops("ipex::mix_channels", fresh, float32_only);
  table.ops("ipex::baddbmm_term ipex::einsum_factor ipex::einsum_factor.sizes", maybe_view);
  table.ops("ipex::einsum_operand", maybe_view, keeps_dtype | takes_sizes_of_second);
  table.ops("ipex::channel_shuffle", maybe_view, contiguous_in_eager);
  table.ops("ipex::to_channels_last ipex::restore_layout", maybe_view, chooses);
  table.ops("ipex::selects", view);
  table.ops("ipex::kept_apart", itself);
  table.ops("ipex::lies_in", Memory::unknown);
  table.ops("ipex::pause_autocast ipex::resume_autocast", no_tensor);
  table.ops("ipex::rearrange", maybe_view, chooses | keeps_dtype);
  table.ops("ipex::move_rows", maybe_view, keeps_dtype);
  table.ops("ipex::row_moves_prepack", no_tensor, makes_context);
  table.ops("ipex::padded_size ipex::padded_number", no_tensor, trait::asks_for_sizes);
  table.ops("ipex::is_channels_last ipex::has_version_of ipex::set_version_of", no_tensor);
  table.ops("ipex::split_weight ipex::join_weight ipex::trained_convolution", fresh);
  table.ops("ipex::has_trained_convolution ipex::trained_convolution_pays", no_tensor);
  table.ops("ipex::quantized_linear_prepack ipex::quantized_convolution_prepack ipex::observer_prepack", no_tensor,
            makes_context);
  table.ops("ipex::quantized_linear_run ipex::quantized_convolution_run ipex::quantize", fresh);
  table.ops("ipex::requantize", fresh);
  table.ops("ipex::dequantize", fresh, floating);
  table.ops("ipex::observe", itself);
  table.ops("ipex::shape_memo_prepack", no_tensor, makes_context);
  table.ops("ipex::recall ipex::remember", Memory::unknown);
  table.ops("ipex::lower_precision ipex::restore_precision", maybe_view);

  // The activations of runtime/packed/post_ops.inc that have no row above. Of integers they give floats, or refuse them.
  for (const ActivationPattern& activation : activation_patterns()) {
    const size_t end = activation.pattern.find('(');
    const bool has_in_place = activation.pattern.substr(0, end).ends_with("_?");
    const std::string op = activation.pattern.substr(0, end - (has_in_place ? 2 : 0));
    if (table.has(op)) continue;
    constexpr Traits traits = elementwise | keeps_dtype | any_layout;
    (has_in_place ? table.with_in_place(op, fresh, traits) : table.ops(op, fresh, traits)).left(not_taken);
  }

  return table.take();
}

// The rows of each name.
using Index = std::unordered_map<Symbol, std::vector<const Op*>>;

const Index& index() {
  static const Index index = [] {
    Index all;
    for (const Op& row : op_table()) all[Symbol::fromQualString(row.name)].push_back(&row);
    return all;
  }();
  return index;
}

}  // namespace

const std::vector<Op>& op_table() {
  static const std::vector<Op> table = rows();
  return table;
}

const Op* op_of(const Node* node) {
  const auto found = index().find(node->kind());
  if (found == index().end()) return nullptr;
  const auto& overloads = found->second;
  if (overloads.front()->has(carries)) return overloads.front();
  const auto* schema = node->maybeSchema();
  if (!schema) return nullptr;
  for (const Op* op : overloads) {
    if (op->overload == schema->overload_name()) return op;
  }
  return nullptr;
}

OpName::OpName(std::string_view text) {
  const size_t dot = text.find('.');
  is_any_overload_ = dot == std::string_view::npos;
  kind_ = Symbol::fromQualString(std::string(text.substr(0, dot)));
  if (!is_any_overload_) overload_ = text.substr(dot + 1);
  TORCH_INTERNAL_ASSERT(row(text), "no row in the op table: ", text);
}

const Op* OpName::row(std::string_view text) {
  const size_t dot = text.find('.');
  const auto found = index().find(Symbol::fromQualString(std::string(text.substr(0, dot))));
  if (found == index().end()) return nullptr;
  const auto& rows = found->second;
  if (dot == std::string_view::npos) return rows.front();
  const auto is_wanted = [&](const Op* op) { return op->overload == text.substr(dot + 1); };
  const auto wanted = std::find_if(rows.begin(), rows.end(), is_wanted);
  return wanted == rows.end() ? nullptr : *wanted;
}

bool OpName::is_of(const Node* node) const {
  if (node->kind() != kind_) return false;
  const Op* op = op_of(node);
  return op && (is_any_overload_ || op->overload == overload_);
}

bool is_run(const Node* node) {
  const Op* op = op_of(node);
  return op && op->packed;
}

bool is_prepack(const Node* node) { return has_trait(node, makes_context); }

bool is_view_by_sizes(const Node* node) {
  static const OpName view("aten::view."), view_as("aten::view_as");
  return view.is_of(node) || view_as.is_of(node);
}

}  // namespace ipex::passes
