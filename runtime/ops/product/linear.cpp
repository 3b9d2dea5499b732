// linear with packed weights.
//
//   ipex::linear_prepack(weight, bias, post_ops, folded_scale, folded_shift, math_mode, vanished, widens) -> LinearContext
//   ipex::linear_run(input, context, operands, eager_layout) -> Tensor
//   ipex::embedding(indices, context) -> Tensor    as aten::embedding of the plain weight
//
// Accepts an input of any rank whose last dimension is the weight's; computes on it flattened to two dimensions. Rows of
// float32 are multiplied by kernels of our own, which read the packed weight: see docs/decisions/products.md. In math mode
// BF32 they multiply by a copy of a large weight in bfloat16, made at the first such call, where that is faster: see
// docs/decisions/reduced_precision.md.
#include "ops/product/linear.h"

#include <ATen/ATen.h>
#include <ipex/isa.h>
#include <torch/library.h>

#include "isa/isa.h"
#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "onednn/row_width.h"
#include "ops/product/look_up_rows.h"
#include "ops/product/product.h"
#include "ops/product/tile_product.h"
#include "packed/dead_operand.h"
#include "packed/door.h"
#include "packed/pad_rows.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

using dnnl::memory;

constexpr const char* op_name = "ipex::linear_run";

// The plain weight, for reading single rows of a layout that takes long to undo.
struct EmbeddingRows {
  at::Tensor weight;
};

}  // namespace

LinearContext::LinearContext(const Spec& spec)
    : PackedOp(spec, 2, spec.weight.defined() && spec.weight.dim() > 0 ? spec.weight.size(0) : 0), steps_(post_ops()) {}

c10::intrusive_ptr<LinearContext> LinearContext::load(const State& state) {
  return c10::make_intrusive<LinearContext>(StateReader(op_name, state).spec());
}

void LinearContext::check_input(const at::Tensor& input) const {
  TORCH_CHECK(fits(input), op_name, ": expected input with last dimension ", input_width(), " (weight is ",
              weight_sizes(), "), got ", input.sizes(), ".");
}

at::Tensor LinearContext::reference(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias) const {
  return at::linear(input, weight, bias);
}

at::Tensor LinearContext::divided(const at::Tensor& weight, const at::Tensor& divisor) const {
  return weight / divisor.unsqueeze(1);
}

int64_t LinearContext::kernel_width() const {
  if (multiplies_in_tiles(dtype())) return whole_tiles(input_width());
  const bool in_pairs = dtype() != at::kFloat && isa::is_in_use(isa::Level::AMX);
  return input_width() + (in_pairs ? input_width() % 2 : 0);
}

at::Tensor LinearContext::kernel_source(const at::Tensor& input) const {
  const at::Tensor rows = kernel_view(input);
  if (kernel_width() == input_width()) return rows;
  at::DimVector sizes(rows.sizes());
  sizes.back() = kernel_width();
  const at::Tensor padded = empty_result(sizes, rows.options());
  pad_rows(rows, input_width(), padded, kernel_width());
  return padded;
}

at::Tensor LinearContext::allocate(const at::Tensor& source) const {
  return empty_result(result_sizes(source), source.options());
}

at::DimVector LinearContext::result_sizes(const at::Tensor& input) const {
  at::DimVector sizes(input.sizes());
  sizes.back() = output_width();
  return sizes;
}

std::unique_ptr<const BlockedWeight> LinearContext::pack(at::Tensor& weight) const {
  if (kernel_width() == input_width()) {
    return std::make_unique<BlockedWeight>(weight, plain_weight_desc(), preferred_weight_desc(), stored_forms());
  }
  const int64_t more = kernel_width() - input_width();
  at::Tensor part = at::constant_pad_nd(weight, {0, more}).narrow(1, 0, input_width());
  return std::make_unique<BlockedWeight>(part, plain_weight_desc(), preferred_weight_desc(), stored_forms());
}

at::Tensor LinearContext::embed(const at::Tensor& indices) const {
  const BlockedWeight* packed = blocked_weight();
  const bool is_plain =
      is_plain_cpu(indices) && (indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt);
  if (!is_plain) return at::embedding(plain_weight(), indices);
  if (!packed || !packed->panels()) {
    const auto make = [&] {
      const at::Tensor rows = stored_forms().get("embedding rows", {dtype(), at::DimVector(weight_sizes())},
                                                 [&] { return plain_weight(); });
      return std::make_unique<EmbeddingRows>(EmbeddingRows{rows});
    };
    return at::embedding(weight().derived<EmbeddingRows>(make).weight, indices);
  }
  const Panels& panels = *packed->panels();
  return look_up_rows(indices, input_width(), [&](int64_t row, float* to) {
    TORCH_CHECK_INDEX(row >= 0 && row < output_width(), "index out of range in self");
    const float* from = panels.data + row / panels.columns * panels.size + row % panels.columns;
    for (int64_t k = 0; k < input_width(); ++k) to[k] = from[k * panels.columns];
  });
}

bool LinearContext::has_own_kernels() const {
  const auto& panels = blocked_weight()->panels();
  return panels && steps_.has_all() && can_multiply(*panels);
}

bool LinearContext::is_for_few_rows(int64_t rank, int64_t rows) const {
  return rows <= most_rows_of_a_small_product && multiplies_alone(rank);
}

bool LinearContext::multiplies_alone(int64_t rank) const {
  return dtype() == at::kFloat && !is_folded_for_another_rank(rank) && steps_.applies_all() && blocked_weight() &&
         has_own_kernels() && math_mode_now(math_mode()) != FP32MathMode::BF32;
}

void LinearContext::multiply(const InputRows& rows, float* result) const { runtime::multiply(product(rows, result)); }

WeightTiles LinearContext::tiles_for(int64_t rows) const {
  return runtime::tiles_for(rows, weight(), *blocked_weight()->panels(), input_width(), output_width());
}

RowsProduct LinearContext::product(const InputRows& rows, float* result) const {
  FusedPostOps all;
  all.count = post_ops().size();
  KernelSteps::Room unused;  // it is for operands
  const ElementwiseSteps steps = steps_.of_call(all, bias(), output_width(), unused);
  return product_of(rows, input_width(), *blocked_weight()->panels(), steps, result, tiles_for(rows.count));
}

at::Tensor LinearContext::run_in_float(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                       bool eager_layout, size_t& done) const {
  if (dtype() != at::kBFloat16) return PackedOp::run_in_float(input, operands, eager_layout, done);
  FusedPostOps fused = fuse_into_result(input, operands, eager_layout, KernelSteps::applies);
  for (at::Tensor& operand : fused.operands) operand = converted(operand, at::kFloat);
  const at::Tensor rows = converted(contiguous_result(input), at::kFloat);
  const at::Tensor bias = this->bias().defined() ? this->bias().to(at::kFloat) : this->bias();
  const at::Tensor sums = empty_result(result_sizes(input), at::kFloat);
  KernelSteps::Room room;
  const ElementwiseSteps steps = steps_.of_call(fused, bias, output_width(), room);
  if (const PairPanels* pairs = pairs_for(row_count(input))) {
    const InputRows some = *rows_of(rows);
    runtime::multiply({.rows = some.first,
                       .row_stride = some.stride,
                       .row_count = some.count,
                       .matrix = {NumberFormat::pairs, pairs->words, input_width()},
                       .panel_columns = pairs->columns,
                       .panel_size = pairs->size,
                       .steps = steps,
                       .result = sums.data_ptr<float>(),
                       .result_stride = output_width()});
  } else {
    rounded_weight().multiply(*rows_of(rows), steps, sums.data_ptr<float>());
  }
  done = fused.count;
  return converted(sums, dtype());
}

const PairPanels* LinearContext::pairs_for(int64_t rows) const {
  // More rows are worth tiles. A small weight is multiplied before threads have woken up, and aten's calls around it cost more.
  constexpr int64_t most_rows = 2, least_elements = 1 << 17;
  const BlockedWeight* packed = blocked_weight();
  if (rows > most_rows || input_width() * output_width() < least_elements || !packed || !packed->pair_panels() ||
      !steps_.has_all()) {
    return nullptr;
  }
  const PairPanels& pairs = *packed->pair_panels();
  const int64_t width = kernels().few_rows.width;
  return pairs.columns % width == 0 && pairs.columns / width <= most_vectors_of_a_panel ? &pairs : nullptr;
}

const Bf16Weight& LinearContext::rounded_weight() const {
  return weight().derived<Bf16Weight>([&] {
    at::Tensor plain;
    const auto source = [&] {
      if (dtype() == at::kFloat && blocked_weight()->panels()) return *blocked_weight()->panels();
      plain = plain_weight().to(at::kFloat).contiguous();
      return Panels{plain.const_data_ptr<float>(), 1, input_width()};
    };
    return std::make_unique<const Bf16Weight>(source, output_width(), input_width(), stored_forms());
  });
}

Facts::Values LinearContext::copies() const {
  Facts::Values found = kept_tiles(weight());
  if (const Bf16Weight* copy = weight().made<Bf16Weight>())
    found.emplace_back("bfloat16_copy_bytes", static_cast<int64_t>(copy->bytes()));
  return found;
}

template <typename Multiply>
at::Tensor LinearContext::compute(Call& call, const Multiply& multiply) {
  const LinearContext& layer = call.layer;
  const std::optional<InputRows> strided = rows_of(call.input);
  const at::Tensor dense = strided ? at::Tensor() : contiguous_result(call.input);
  FusedPostOps fused;
  if (layer.steps_.applies_all()) {
    fused.count = layer.post_ops().size();
  } else {
    fused = layer.fuse_into_result(call.input, call.operands, call.eager_layout, KernelSteps::applies);
  }
  const at::DimVector sizes = layer.result_sizes(call.input);
  const bool accumulates = call.may_accumulate && adds_in_place(fused, call.operands.front());
  at::Tensor result =
      accumulates ? in_memory_of(call.operands.front(), sizes, layer.kernel_format()) : empty_result(sizes, at::kFloat);
  KernelSteps::Room room;
  multiply(strided ? *strided : *rows_of(dense), layer.steps_.of_call(fused, layer.bias(), layer.output_width(), room),
           result.data_ptr<float>());
  call.done = fused.count;
  return result;
}

const LinearContext::Algorithm LinearContext::pairs{
    "pairs of bfloat16",
    [](const Call& call) -> const char* {
      if (call.layer.dtype() == at::kFloat) return "its weight is float32";
      return call.layer.pairs_for(call.rows) ? nullptr : "it has many rows, or a small weight";
    },
    [](Call& call) { return call.layer.run_in_float(call.input, call.operands, call.eager_layout, call.done); }};

const LinearContext::Algorithm LinearContext::rounded{
    "factors rounded to bfloat16",
    [](const Call& call) -> const char* {
      const LinearContext& layer = call.layer;
      if (layer.dtype() != at::kFloat) return "its weight is of 16 bits";
      if (math_mode_now(layer.math_mode()) != FP32MathMode::BF32) return "its math mode is FP32";
      const size_t left_to_aten = layer.steps_.has_all() ? 0 : layer.post_ops().size();
      const int64_t elements = layer.input_width() * layer.output_width();
      return Bf16Weight::is_worth_it(call.rows, elements, left_to_aten) ? nullptr : "it has few products";
    },
    [](Call& call) {
      return compute(call, [&](auto... product) { call.layer.rounded_weight().multiply(product...); });
    }};

const LinearContext::Algorithm LinearContext::panels{
    "panels",
    [](const Call& call) -> const char* {
      if (call.layer.dtype() != at::kFloat) return "its weight is of 16 bits";
      return call.layer.has_own_kernels() ? nullptr : "no kernel of ours has its post-ops, or reads its packed weight";
    },
    [](Call& call) {
      const LinearContext& layer = call.layer;
      return compute(call, [&](const InputRows& rows, const ElementwiseSteps& steps, float* result) {
        runtime::multiply(product_of(rows, layer.input_width(), *layer.blocked_weight()->panels(), steps, result,
                                     layer.tiles_for(rows.count)));
      });
    }};

at::Tensor LinearContext::run_own_kernel(const at::Tensor& input, const std::vector<at::Tensor>& operands,
                                         bool may_accumulate, bool eager_layout, size_t& done) const {
  static constexpr std::array list{&pairs, &rounded, &panels, &by_onednn<Call>};
  Call call{*this, input, operands, may_accumulate, eager_layout};
  const at::Tensor result = run_first(op_name, list, call);
  done = call.done;
  return result;
}

// oneDNN multiplies by a [in, out] matrix; aten's weight is its transpose.
memory::desc LinearContext::plain_weight_desc() const {
  return {{kernel_width(), output_width()}, data_type(), memory::format_tag::ba};
}

memory::desc LinearContext::any_weight_desc() const {
  return {{kernel_width(), output_width()}, data_type(), memory::format_tag::any};
}

// The number of rows is not known when packing; the layout that matmul asks for does not depend on it.
memory::desc LinearContext::preferred_weight_desc() const {
  // oneDNN 3.7.2 misreads what it packs for these with AVX2, where the sums are long.
  if (output_width() > 8 && output_width() <= 16 && !isa::has_avx512()) return plain_weight_desc();
  constexpr int64_t ordinary_rows = 64;
  auto desc = primitive_desc({ordinary_rows, kernel_width()}, any_weight_desc(), {}, math_mode_for_packing());
  return desc && skip_reference_implementations(desc) ? desc.weights_desc() : plain_weight_desc();
}

dnnl::primitive_desc LinearContext::primitive_desc(const std::vector<int64_t>& source_sizes,
                                                   const memory::desc& weight_desc, const FusedPostOps& fused,
                                                   FP32MathMode mode) const {
  const auto row_major = [](int64_t height, int64_t width, memory::data_type type) {
    return memory::desc({height, width}, type, memory::format_tag::ab);
  };
  const memory::desc source = row_major(source_sizes[0], kernel_width(), data_type());
  const memory::desc result = row_major(source_sizes[0], output_width(), data_type());
  const memory::desc bias_desc = bias().defined() ? row_major(1, output_width(), bias_data_type()) : memory::desc();
  return dnnl::matmul::primitive_desc(engine(), source, weight_desc, bias_desc, result,
                                      attributes(mode, fused, result, /*channel=*/1), /*allow_empty=*/true);
}

namespace {

c10::intrusive_ptr<LinearContext> linear_prepack(const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                                                 std::vector<std::string> post_ops,
                                                 const std::optional<at::Tensor>& folded_scale,
                                                 const std::optional<at::Tensor>& folded_shift,
                                                 std::optional<int64_t> math_mode,
                                                 const std::optional<at::Tensor>& vanished, bool widens) {
  auto context = c10::make_intrusive<LinearContext>(
      Spec{op_name, weight, bias.value_or(at::Tensor()), std::move(post_ops), folded_scale.value_or(at::Tensor()),
           folded_shift.value_or(at::Tensor()), pinned_math_mode(op_name, math_mode), vanished.value_or(at::Tensor()),
           widens});
  context->ensure_packed();
  return context;
}

// The equation of an einsum tells the rank, 0 for any; a linear takes all.
void check_rank(const at::Tensor& x, int64_t rank) {
  TORCH_CHECK(rank == 0 || x.dim() == rank, "einsum: expected a factor of ", rank, " dimensions, got ", x.sizes(), ".");
}

// An einsum's first factor as linear takes it: a last dimension of one element is repeated, as einsum does.
at::Tensor einsum_factor(const at::Tensor& x, int64_t size, int64_t rank) {
  check_rank(x, rank);
  if (size == 1 || x.dim() == 0 || x.size(-1) != 1) return x;
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = size;
  return x.expand(sizes);
}

// The same of several dimensions, which are joined.
at::Tensor einsum_factors(const at::Tensor& x, at::IntArrayRef last_sizes, int64_t rank) {
  check_rank(x, rank);
  const int64_t rest = x.dim() - static_cast<int64_t>(last_sizes.size());
  TORCH_CHECK(rest >= 0, "einsum: expected a factor of ", last_sizes.size(), " dimensions or more, got ", x.sizes(),
              ".");
  std::vector<int64_t> sizes = x.sizes().vec();
  for (size_t i = 0; i < last_sizes.size(); ++i) {
    int64_t& size = sizes[static_cast<size_t>(rest) + i];
    if (size == 1) size = last_sizes[i];
    TORCH_CHECK(size == last_sizes[i], "einsum: expected dimensions of sizes ", last_sizes, ", got ", x.sizes(), ".");
  }
  return x.expand(sizes).flatten(rest);
}

at::Tensor embedding(const at::Tensor& indices, const c10::intrusive_ptr<LinearContext>& context) {
  return context->embed(indices);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<LinearContext>(m, "LinearContext");
  define(m, "embedding(Tensor indices, __torch__.torch.classes.ipex.LinearContext context) -> Tensor", embedding);
  define(m, "einsum_factor(Tensor(a) x, int size, int rank=0) -> Tensor(a)", einsum_factor);
  define(m, "einsum_factor.sizes(Tensor(a) x, int[] sizes, int rank=0) -> Tensor(a)", einsum_factors);
  define(m,
         "linear_prepack(Tensor weight, Tensor? bias, str[] post_ops, Tensor? folded_scale, Tensor? folded_shift, "
         "int? math_mode, Tensor? vanished=None, bool widens=False) -> __torch__.torch.classes.ipex.LinearContext",
         linear_prepack);
  define(m,
         "linear_run(Tensor input, __torch__.torch.classes.ipex.LinearContext context, Tensor[] operands, "
         "bool eager_layout) -> Tensor",
         OnStack{run_boxed<LinearContext>});
}

}  // namespace
}  // namespace ipex::runtime
