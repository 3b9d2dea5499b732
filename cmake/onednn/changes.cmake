# Changes to oneDNN's own code, made on copies in ${CMAKE_BINARY_DIR}/changed; the source tree stays as it is. Sets
# `changed_sources` to their names. The build stops where a text to be replaced is not found exactly once.
set(changed_sources "")
macro(change file)  # then replace_once as often as needed, then done_changing
  set(original ${IPEX_ONEDNN_SOURCE}/src/${file})
  file(READ ${original} code)
endmacro()
function(replace_once before after)
  string(FIND "${code}" "${before}" first)
  string(FIND "${code}" "${before}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "cmake/onednn: expected exactly one `${before}` in ${original}. Adapt the change to this oneDNN.")
  endif()
  string(REPLACE "${before}" "${after}" code "${code}")
  set(code "${code}" PARENT_SCOPE)
endfunction()
function(remove_lines pattern)
  string(REGEX REPLACE "\n *${pattern}" "" code "${code}")
  set(code "${code}" PARENT_SCOPE)
endfunction()
function(remove_matches pattern)
  string(REGEX REPLACE "${pattern}" "" code "${code}")
  set(code "${code}" PARENT_SCOPE)
endfunction()
macro(done_changing)
  get_filename_component(name ${original} NAME)
  file(WRITE ${CMAKE_BINARY_DIR}/changed/${name} "${code}")
  list(APPEND changed_sources ${name})
endmacro()

# Activations keep NaN, as eager does: minps and maxps return their second operand when either is NaN, and upstream puts
# the constant second; a comparison with NaN is false, and upstream takes that for "in range". And exp overflows to
# infinity: upstream stops at the largest float. docs/decisions/norms_and_elementwise.md
change(cpu/x64/injectors/jit_uni_eltwise_injector.cpp)
replace_once("case eltwise_relu: n_vmms = (alpha != 0.f); break;" "case eltwise_relu: n_vmms = 1; break;")
replace_once("relu_zero_ns_compute_vector_fwd(
        const Vmm &vmm_src) {
    h->uni_vmaxps(vmm_src, vmm_src, table_val(zero));"
  "relu_zero_ns_compute_vector_fwd(
        const Vmm &vmm_src) {
    h->uni_vmovups(vmm_aux(0), table_val(zero));
    h->uni_vmaxps(vmm_aux(0), vmm_aux(0), vmm_src);
    h->uni_vmovups(vmm_src, vmm_aux(0));")
replace_once("    h->uni_vminps(vmm_src, vmm_src, table_val(exp_ln_flt_max_f));
    h->uni_vmaxps(vmm_src, vmm_src, vmm_aux(0));
    h->uni_vmovups(vmm_aux(0), vmm_src);"
  "    h->uni_vmovups(vmm_aux(1), table_val(exp_ln_flt_max_f));
    h->uni_vminps(vmm_aux(1), vmm_aux(1), vmm_src);
    h->uni_vmaxps(vmm_aux(0), vmm_aux(0), vmm_aux(1));
    h->uni_vmovups(vmm_src, vmm_aux(0));")
replace_once("{exp_ln_flt_max_f, {0x42b17218, true}}," "{exp_ln_flt_max_f, {0x42b20000, true}},")
replace_once("compute_cmp_mask(vmm_aux(2), table_val(exp_ln_flt_max_f), _cmp_gt_os);"
  "compute_cmp_mask(vmm_aux(2), table_val(exp_ln_flt_max_f), jit_generator::_cmp_nle_us);")
replace_once("compute_cmp_mask(vmm_tmp, vmm_src, _cmp_gt_os);
    blend_with_mask(vmm_dst, vmm_src);"
  "compute_cmp_mask(vmm_tmp, vmm_src, jit_generator::_cmp_nle_us);
    blend_with_mask(vmm_dst, vmm_src);")
replace_once("            case eltwise_clip_v2: n_vmms = 0; break;" "            case eltwise_clip_v2: n_vmms = 1; break;")
replace_once("    h->uni_vmaxps(vmm_src, vmm_src, table_val(alpha));
    h->uni_vminps(vmm_src, vmm_src, table_val(beta));"
  "    h->uni_vmovups(vmm_aux(0), table_val(alpha));
    h->uni_vmaxps(vmm_aux(0), vmm_aux(0), vmm_src);
    h->uni_vmovups(vmm_src, vmm_aux(0));
    h->uni_vmovups(vmm_aux(0), table_val(beta));
    h->uni_vminps(vmm_aux(0), vmm_aux(0), vmm_src);
    h->uni_vmovups(vmm_src, vmm_aux(0));")
replace_once("            case eltwise_hardswish: n_vmms = 1; break;
            case eltwise_hardsigmoid: n_vmms = 0; break;"
  "            case eltwise_hardswish:
            case eltwise_hardsigmoid: n_vmms = 2; break;")
replace_once("    h->uni_vminps(vmm_src, vmm_src, table_val(one));
    h->uni_vmaxps(vmm_src, vmm_src, table_val(zero));"
  "    h->uni_vmovups(vmm_aux(1), table_val(one));
    h->uni_vminps(vmm_aux(1), vmm_aux(1), vmm_src);
    h->uni_vmovups(vmm_src, vmm_aux(1));
    h->uni_vmovups(vmm_aux(1), table_val(zero));
    h->uni_vmaxps(vmm_aux(1), vmm_aux(1), vmm_src);
    h->uni_vmovups(vmm_src, vmm_aux(1));")
# gelu of infinity is infinity: beyond the last polynomial, which is constant, its other coefficients are 0, and 0 times
# infinity NaN.
replace_once("blend_with_mask(vmm_indices, table_val(gelu_erf_twenty_three));

    // we can now evaluate the polynomial"
  "blend_with_mask(vmm_indices, table_val(gelu_erf_twenty_three));
    h->uni_vminps(vmm_src_pos, vmm_src_pos, table_val(gelu_erf_rbound));
")
# mish of numbers far below zero: (e^x + 1)^2 - 1 cancels where e^x (e^x + 2) does not.
replace_once("    // (e^x+1)^2
    h->uni_vaddps(vmm_src, vmm_src, table_val(one));
    h->uni_vmulps(vmm_src, vmm_src, vmm_src);

    // save (e^x+1)^2 as it appears in both the denominator and the numerator
    h->uni_vmovups(vmm_aux(0), vmm_src);

    // x * ((e^x + 1)^2 - 1) / ((e^x + 1)^2 + 1)
    h->uni_vsubps(vmm_src, vmm_src, table_val(one));
    h->uni_vaddps(vmm_aux(0), vmm_aux(0), table_val(one));"
  "    h->uni_vaddps(vmm_aux(0), vmm_src, table_val(one));
    h->uni_vaddps(vmm_aux(0), vmm_aux(0), table_val(one));
    h->uni_vmulps(vmm_src, vmm_src, vmm_aux(0));
    h->uni_vaddps(vmm_aux(0), vmm_src, table_val(one));
    h->uni_vaddps(vmm_aux(0), vmm_aux(0), table_val(one));")
done_changing()

# What no op of ours can reach is not compiled: loops without gemm kernels and reference loops, which runtime/onednn refuses
# by name; products by way of primitives that are left out; 8-bit floats and types of results that no op has. And
# transposed convolutions go through brgemm backward-data kernels; the others would have to be compiled too.
set(unreachable "(ip_|gemm_|ref_|jit_uni_ncsp_|[a-z0-9_]*convolution_bwd_data)")
change(cpu/cpu_convolution_list.cpp)
remove_lines("CPU_INSTANCE[A-Z0-9_]*\\(${unreachable}[^\n]*")
remove_lines("BRGEMM_FP8_[A-Z_]*CONVS\\(f[^\n]*")
remove_matches("\n *{{forward, (s8, s8, [a-z0-9]+|u8, s8, (bf16|s32|s8)|f16, f16, f32)}, {[^}]*}},")
done_changing()
change(cpu/matmul/cpu_matmul_list.cpp)
remove_lines("CPU_INSTANCE\\(${unreachable}[^\n]*")
done_changing()

# Of these, what runs backward: no list names it.
foreach(name IN ITEMS jit_uni_dw_conv_kernel_f32 jit_uni_dw_convolution jit_avx512_common_conv_kernel jit_avx512_common_convolution)
  change(cpu/x64/${name}.cpp)
  remove_matches("\n(REG_[A-Z0-9]*_ISA\\()?[ \n]*template struct [a-z0-9_]*bwd_(data|weights)[^;]*;")
  done_changing()
endforeach()

# Weights are reordered in their own type.
change(cpu/reorder/cpu_reorder.cpp)
remove_lines("{{[^\n]*(fp4|fp8|s4|u4|s32|u8|f32_s8|bf16_s8)_impl_list_map[^\n]*")
done_changing()

foreach(name IN ITEMS bf16 f32_bf16 f32_f32 s8)
  change(cpu/reorder/cpu_reorder_regular_${name}.cpp)
  remove_lines("CPU_REORDER_INSTANCE\\(rnn_[^\n]*")
  done_changing()
endforeach()

# Of the transposed convolutions only the brgemm kernels are compiled.
change(cpu/cpu_deconvolution_list.cpp)
remove_lines("CPU_INSTANCE[A-Z0-9_]*\\((jit|ref|acl)[^\n]*")
done_changing()

# A convolution whose weights are packed already blocks its output channels as they are, instead of preferring another
# blocking for this shape and then refusing the weights. docs/decisions/products.md
change(cpu/x64/jit_brgemm_conv_utils.cpp)
replace_once("status_t pick_tags(jit_brgemm_conv_conf_t &jcp, memory_desc_t &src_md,"
  "static bool weights_fit(const memory_desc_t &weights_md, const jit_brgemm_conv_conf_t &jcp, int oc_block) {
    if (weights_md.format_kind != format_kind::blocked || jcp.wei_plain) return true;
    const int oc_dim = weights_md.ndims - jcp.ndims;
    const auto &blocking = weights_md.format_desc.blocking;
    dim_t packed_oc_block = 1;
    for (int i = 0; i < blocking.inner_nblks; ++i)
        if (blocking.inner_idxs[i] == oc_dim) packed_oc_block *= blocking.inner_blks[i];
    return packed_oc_block == oc_block;
}

status_t pick_tags(jit_brgemm_conv_conf_t &jcp, memory_desc_t &src_md,")
replace_once("        start_ocb = nstl::min(div_up(jcp.oc, jcp.acc_simd_w), start_ocb);"
  "        if (weights_md.format_kind != format_kind::any) start_ocb = 4;
        start_ocb = nstl::min(div_up(jcp.oc, jcp.acc_simd_w), start_ocb);")
replace_once("if (!cur_brgb.fast_check_oc_block()) continue;"
  "if (weights_md.format_kind == format_kind::any) {
                if (!cur_brgb.fast_check_oc_block()) continue;
            } else if (!weights_fit(weights_md, jcp, cur_brgb.oc_block)) continue;")
replace_once("if (!cur_brgb.fast_check_oc_block_1x1()) continue;"
  "if (weights_md.format_kind == format_kind::any) {
            if (!cur_brgb.fast_check_oc_block_1x1()) continue;
        } else if (!weights_fit(weights_md, jcp, cur_brgb.oc_block)) continue;")
done_changing()
