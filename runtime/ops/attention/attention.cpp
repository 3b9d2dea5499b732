// softmax(query @ key^T, after some steps) @ value.
//
//   ipex::attention(query, key_transposed, value, steps, operands, numbers, eager_layout) -> Tensor
//
// `steps` names what the model computes, in order, each step taking what it needs from `operands` and `numbers`:
//
//   of_16_bits                   first of all: of query, key and value as float32, and the result in their dtype
//   scale_query, scale_key       before the product, query or key times a number
//   matmul, bmm                  query @ key_transposed, and (where it comes last) the product with value
//   baddbmm                      input from operands, beta and alpha from numbers
//   mul, div, add                a tensor from operands; mul_number and div_number take a number
//   add_sides                    a tensor of the mask's shape from operands, and two whose sum, in that shape, is the mask
//   masked_fill                  a mask from operands, the value from numbers; masked_fill_tensor: from operands
//   where                        a mask from operands, the value elsewhere as for masked_fill; and where_tensor
//   to                           a dtype from numbers; type_as takes that of the step with this number
//   view, reshape                how many sizes, and the sizes, from numbers
//   turned_matmul, turned_bmm    last of all, value @ what has these two dimensions, from numbers, swapped
//   spread_matmul                last of all, as einsum multiplies: one weight, or one value, counts for all; of so many dimensions,
//                                from numbers, 0 for any
//   softmax                      the dimension from numbers; softmax_to takes a dtype as well
//
// A name that ends in _ works in place. So `compute_steps` gives what eager gives, whatever the tensors are. Where they
// are float32 or of 16 bits and the steps come down to a scale and a mask, a kernel of our own gives the same without holding
// all scores, which it never rounds to 16 bits. What is not finite it leaves to the steps. A profiler shows the reason under
// the name of the op.
//   ipex::attention_of_bytes(.., eager_layout, scales) -> Tensor
//   ipex::attention_of_bytes.bytes(.., scales, scale, zero_point) -> ipex::quantize of it, in the same pass
//
// have uint8 numbers for query, key and value (kernels/byte_attention.h), whose scales and zero points `scales` has.
// With eager_layout the result is contiguous, as eager's; else it may keep the kernel's layout, [batch, length, heads,
// width] in memory, which is what a reader that merges the heads wants.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string_view>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "ops/attention/attention_heads.h"
#include "packed/call_conditions.h"
#include "packed/damaged.h"
#include "packed/door.h"
#include "packed/float_rows.h"
#include "packed/memory_format.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// Hands out the steps' arguments in order.
class Arguments {
 public:
  Arguments(const std::vector<at::Tensor>& operands, const std::vector<double>& numbers)
      : operands_(operands), numbers_(numbers) {}

  const at::Tensor& operand() { return operands_.at(next_operand_++); }
  double number() { return numbers_.at(next_number_++); }
  int64_t integer() { return static_cast<int64_t>(number()); }
  at::ScalarType dtype() { return static_cast<at::ScalarType>(integer()); }
  std::vector<int64_t> sizes() {
    std::vector<int64_t> found;
    for (int64_t left = integer(); left > 0; --left)
      found.push_back(integer());  // a damaged count ends with the numbers
    return found;
  }

 private:
  const std::vector<at::Tensor>& operands_;
  const std::vector<double>& numbers_;
  size_t next_operand_ = 0, next_number_ = 0;
};

at::Tensor compute_step(const std::string& step, const at::Tensor& scores, Arguments& arguments) {
  if (step == "mul") return at::mul(scores, arguments.operand());
  if (step == "mul_") return at::Tensor(scores).mul_(arguments.operand());
  if (step == "mul_number") return at::mul(scores, arguments.number());
  if (step == "mul_number_") return at::Tensor(scores).mul_(arguments.number());
  if (step == "div") return at::div(scores, arguments.operand());
  if (step == "div_") return at::Tensor(scores).div_(arguments.operand());
  if (step == "div_number") return at::div(scores, arguments.number());
  if (step == "div_number_") return at::Tensor(scores).div_(arguments.number());
  if (step == "add") return at::add(scores, arguments.operand());
  if (step == "add_sides") {
    const at::Tensor shape = arguments.operand(), rows = arguments.operand();
    return at::add(scores, sum_of_sides(rows, arguments.operand(), shape.sizes()));
  }
  if (step == "add_") return at::Tensor(scores).add_(arguments.operand());
  if (step == "masked_fill") return at::masked_fill(scores, arguments.operand(), arguments.number());
  if (step == "masked_fill_") return at::Tensor(scores).masked_fill_(arguments.operand(), arguments.number());
  if (step == "masked_fill_tensor" || step == "masked_fill_tensor_") {
    const at::Tensor mask = arguments.operand(), value = arguments.operand();
    return step.ends_with('_') ? at::Tensor(scores).masked_fill_(mask, value) : at::masked_fill(scores, mask, value);
  }
  if (step == "where_tensor") {
    const at::Tensor mask = arguments.operand();
    return at::where(mask, scores, arguments.operand());
  }
  if (step == "where") return at::where(arguments.operand(), scores, at::Scalar(arguments.number()));
  if (step == "to") return scores.to(arguments.dtype());
  if (step == "view") return scores.view(arguments.sizes());
  if (step == "reshape") return scores.reshape(arguments.sizes());
  if (step == "softmax") return at::softmax(scores, arguments.integer());
  if (step == "softmax_to") {
    const int64_t dimension = arguments.integer();
    return at::softmax(scores, dimension, arguments.dtype());
  }
  TORCH_CHECK(false, "ipex::attention: expected a step that this version knows, got '", step,
              "'. The model was written by a newer ipex: upgrade, or optimise it again.");
}

constexpr std::string_view turned = "turned_";
using Steps = c10::ArrayRef<std::string>;
bool is_turned(Steps steps) { return steps.back().starts_with(turned); }
bool is_spread(Steps steps) { return steps.back() == "spread_matmul"; }

const std::string of_16_bits = "of_16_bits";

at::Tensor multiply(const std::string& step, const at::Tensor& a, const at::Tensor& b) {
  return step == "bmm" ? at::bmm(a, b) : at::matmul(a, b);
}

// As an einsum sums over weights that are of so many dimensions, 0 for any.
at::Tensor multiply_spread(at::Tensor weights, at::Tensor value, int64_t rank) {
  TORCH_CHECK(rank == 0 || weights.dim() == rank, "einsum: expected a factor of ", rank, " dimensions, got ",
              weights.sizes(), ".");
  const auto spread = [](const at::Tensor& x, int64_t dimension, int64_t size) {
    if (x.size(dimension) != 1) return x;
    at::DimVector sizes(x.sizes());
    sizes[static_cast<size_t>(x.dim() + dimension)] = size;
    return x.expand(sizes);
  };
  weights = spread(weights, -1, value.size(-2));
  value = spread(value, -2, weights.size(-1));
  return at::matmul(weights, value);
}

at::Tensor as_float(const at::Tensor& x) { return at::isReducedFloatingType(x.scalar_type()) ? x.to(at::kFloat) : x; }

at::Tensor compute_steps(at::Tensor query, at::Tensor key_transposed, const at::Tensor& value, Steps steps,
                         Arguments arguments) {
  if (steps.front() == of_16_bits) {
    return compute_steps(as_float(query), as_float(key_transposed), as_float(value), steps.slice(1), arguments)
        .to(query.scalar_type());
  }
  at::Tensor result;
  std::vector<at::ScalarType> dtypes;  // after each step
  size_t next = 0;
  if (steps.front() == "scale_query" || steps.front() == "scale_key") {
    at::Tensor& factor = steps.front() == "scale_query" ? query : key_transposed;
    factor = at::mul(factor, arguments.number());
    dtypes.push_back(factor.scalar_type());
    ++next;
  }
  if (steps.at(next) == "baddbmm") {
    const at::Tensor input = arguments.operand();
    const double beta = arguments.number();
    result = at::baddbmm(input, query, key_transposed, beta, arguments.number());
  } else {
    result = multiply(steps.at(next), query, key_transposed);
  }
  dtypes.push_back(result.scalar_type());
  for (size_t i = next + 1; i + 1 < steps.size(); ++i) {
    result = steps[i] == "type_as" ? result.to(dtypes.at(static_cast<size_t>(arguments.integer())))
                                   : compute_step(steps[i], result, arguments);
    dtypes.push_back(result.scalar_type());
  }
  if (is_spread(steps)) return multiply_spread(result, value, arguments.integer());
  if (!is_turned(steps)) return multiply(steps.back(), result, value);
  const int64_t a = arguments.integer(), b = arguments.integer();
  return multiply(steps.back().substr(turned.size()), value, result.transpose(a, b));
}

// The largest magnitude in a tensor, which may be strided; NaN or infinity where there is one. Goes through memory in
// order: a head's rows lie far apart where query, key and value come out of one product.
double largest_magnitude(const at::Tensor& numbers) {
  const at::Tensor tensor = numbers.to(at::kFloat);
  struct Dimension {
    int64_t size, stride;
  };
  std::vector<Dimension> dimensions;
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (tensor.size(i) > 1) dimensions.push_back({tensor.size(i), tensor.stride(i)});
  }
  std::stable_sort(dimensions.begin(), dimensions.end(),
                   [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  // From the inside: dimensions that follow each other without a gap are one, a run of memory.
  int64_t run = 1;
  std::vector<Dimension> outer;
  for (const Dimension& dimension : dimensions) {
    if (outer.empty() && dimension.stride == run) {
      run *= dimension.size;
    } else {
      outer.push_back(dimension);
    }
  }
  const float* data = tensor.const_data_ptr<float>();
  const auto largest_of = kernels().attention.largest_magnitude;
  const auto largest_of_run = [&](int64_t index) {
    int64_t offset = 0;
    for (const auto& [size, stride] : outer) {
      offset += index % size * stride;
      index /= size;
    }
    return largest_of(data + offset, run);
  };
  const auto largest_in = [&](int64_t begin, int64_t end) {
    if (outer.empty()) return largest_of(data + begin, end - begin);
    uint32_t largest = 0;
    for (int64_t i = begin; i < end; ++i) largest = std::max(largest, largest_of_run(i));
    return largest;
  };
  // In runs, or in elements where there is only one.
  const int64_t count = outer.empty() ? run : tensor.numel() / run;
  constexpr int64_t elements_worth_a_thread = 65536;
  const int64_t grain = outer.empty() ? elements_worth_a_thread : std::max<int64_t>(1, elements_worth_a_thread / run);
  std::atomic<uint32_t> largest = 0;
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    const uint32_t found = largest_in(begin, end);
    for (uint32_t seen = largest; seen < found && !largest.compare_exchange_weak(seen, found);) {
    }
  });
  return std::bit_cast<float>(largest.load());
}

// What the fused kernel is told: softmax(query @ key^T * scale + masks) @ value.
class Fused {
 public:
  // Three dimensions are a batch of single heads; of more than four, all before the heads are one batch.
  Fused(const at::Tensor& query, const at::Tensor& key_transposed, const at::Tensor& value, bool stands_for_floats,
        const std::optional<AttentionAffines>& affines)
      : affines_(affines),
        dtype_(affines || stands_for_floats ? at::kFloat : query.scalar_type()),
        batch_(query.sizes().slice(0, query.dim() - 2).vec()),
        split_(batch_),
        query_(in_four_dimensions(query)),
        key_(in_four_dimensions(key_transposed.transpose(-2, -1))),
        value_(in_four_dimensions(value)) {}

  static const char* reason_against(const at::Tensor& query, const at::Tensor& key_transposed, const at::Tensor& value,
                                    bool is_bytes) {
    for (const at::Tensor* tensor : {&query, &key_transposed, &value}) {
      if (!is_bytes && !has_float_rows(*tensor)) return "an input is no CPU tensor of float32 or 16 bits";
      if (tensor->scalar_type() != query.scalar_type()) return "its inputs are of several dtypes";
      if (wants_gradient(*tensor)) return "an input requires a gradient";
      if (tensor->dim() != query.dim() || tensor->dim() < 3) return "it has not 3 dimensions or more";
      if (tensor->numel() == 0) return "an input is empty";
    }
    const auto batch_of = [](const at::Tensor& tensor) { return tensor.sizes().slice(0, tensor.dim() - 2); };
    if (batch_of(query) != batch_of(key_transposed) || batch_of(query) != batch_of(value)) {
      return "a batch is broadcast";
    }
    if (query.size(-1) != key_transposed.size(-2) || key_transposed.size(-1) != value.size(-2)) {
      return "the sizes do not fit";
    }
    return is_bytes ? reason_against_bytes(query, key_transposed.transpose(-2, -1)) : nullptr;
  }

  const char* add_step(const std::string& step, Arguments& arguments) {
    const char* reason = understand(step, arguments);
    dtypes_.push_back(scores_dtype_);
    return reason;
  }

  // What speaks against all steps together.
  const char* reason_at_the_end() const {
    if (scores_dtype_ != dtype_) return "its weights are of another dtype than its values";
    return batch_ == split_ ? nullptr : "its weights are not shaped as its scores";
  }

  // Undefined where a number is not finite, or a query sees no key.
  at::Tensor run(bool eager_layout, bool rounds) const {
    AttentionHeads heads{.query = HeadRows::to_read(query_),
                         .key = HeadRows::to_read(key_),
                         .value = HeadRows::to_read(value_),
                         .masks = masks_,
                         .grid = grid_,
                         .scale = static_cast<float>(scale_),
                         .head_scales = head_scales_,
                         .rounds = rounds,
                         .affines = affines_};
    const bool is_turned = lie_turned(heads);
    std::vector<at::Tensor> dense;  // what had no dense rows
    for (const auto& [part, rows] : {std::pair(&query_, &heads.query), {&key_, &heads.key}, {&value_, &heads.value}}) {
      if (is_turned || part->stride(-1) == 1) continue;
      dense.push_back(contiguous_result(*part));
      *rows = HeadRows::to_read(dense.back());
    }
    at::Tensor result = is_turned ? turned_result() : result_in_rows(eager_layout);
    if (!attend(heads, HeadRows::to_write(result))) return {};
    if (is_turned && eager_layout) result = contiguous_result(result);
    if (batch_.size() == 2) return result;
    return batch_.size() == 1 ? result.squeeze(1)
                              : result.unflatten(0, at::IntArrayRef(batch_).slice(0, batch_.size() - 1));
  }

 private:
  const char* understand(const std::string& step, Arguments& arguments) {
    if (step == "baddbmm") {
      const at::Tensor input = arguments.operand();
      if (input.scalar_type() != dtype_) return "its mask is of another dtype";
      const double beta = arguments.number(), alpha = arguments.number();
      const char* reason = scale(alpha);
      if (beta == 0 && fits_scores(input)) return reason;
      if (beta != 1) return "beta is neither 0 nor 1";
      return reason ? reason : add(input, /*is_in_place=*/false);
    }
    if (step == "view" || step == "reshape") return split(arguments.sizes());
    if (step.starts_with("mul_number") || step == "scale_query" || step == "scale_key") {
      return scale(arguments.number());
    }
    if (step.starts_with("div_number")) return scale(1 / arguments.number());
    if (step.starts_with("mul") || step.starts_with("div")) {
      const at::Tensor& operand = arguments.operand();
      const auto factor = one_number(operand);
      if (!factor) return scale_heads(operand, step.starts_with("div"), step.ends_with('_'));
      return scale(step.starts_with("mul") ? *factor : 1 / *factor);
    }
    if (step == "add_sides") {
      const at::Tensor shape = arguments.operand(), rows = arguments.operand();
      return add_sides(rows, arguments.operand(), shape.sizes());
    }
    if (step.starts_with("add")) return add(arguments.operand(), step.ends_with('_'));
    if (step.starts_with("masked_fill") || step.starts_with("where")) {
      const at::Tensor& mask = arguments.operand();
      const bool is_tensor = step.find("_tensor") != std::string::npos;
      const auto number = is_tensor ? one_number(arguments.operand()) : std::optional(arguments.number());
      if (!number) return "what it is masked with is not one number";
      return fill(mask, step.starts_with("masked_fill"), *number);
    }
    if (step == "type_as") return cast(dtypes_.at(static_cast<size_t>(arguments.integer())));
    if (step == "to") return cast(arguments.dtype());
    if (step.starts_with("softmax")) {
      const int64_t dimension = arguments.integer();
      if (dimension != -1 && dimension != std::ssize(split_) + 1) return "its softmax is not over the last dimension";
      return step == "softmax_to" ? cast(arguments.dtype()) : nullptr;
    }
    return step == "matmul" || step == "bmm" ? nullptr : "a step is unknown";
  }

  at::Tensor result_in_rows(bool eager_layout) const {
    // With one head, one row, or heads one wide, the layout that the reader wants and eager's are the same memory.
    const bool is_both = query_.size(1) == 1 || query_.size(2) == 1 || value_.size(3) == 1;
    const int64_t batch = query_.size(0), heads = query_.size(1), queries = query_.size(2), width = value_.size(3);
    const auto dtype = !affines_ ? query_.scalar_type() : affines_->result ? at::kByte : at::kFloat;
    return eager_layout || is_both ? empty_result({batch, heads, queries, width}, dtype)
                                   : empty_result({batch, queries, heads, width}, dtype).transpose(1, 2);
  }

  // As heads of channels come out of a product: all of a position, one head after the other.
  at::Tensor turned_result() const {
    return empty_result({query_.size(0), value_.size(3), query_.size(1), query_.size(2)}, at::kFloat)
        .permute({0, 2, 3, 1});
  }

  static at::Tensor in_four_dimensions(const at::Tensor& tensor) {
    return tensor.dim() == 3 ? tensor.unsqueeze(1) : tensor.flatten(0, tensor.dim() - 4);
  }

  static std::optional<double> one_number(const at::Tensor& tensor) {
    if (tensor.dim() != 0 || !is_plain_cpu(tensor) || tensor.is_complex() || wants_gradient(tensor)) {
      return std::nullopt;
    }
    return tensor.item().toDouble();
  }

  // Whether the tensor can be broadcast to the scores, and not the other way round.
  bool fits_scores(const at::Tensor& tensor) const {
    std::vector<int64_t> scores = split_;
    scores.insert(scores.end(), {query_.size(2), key_.size(2)});
    return at::is_expandable_to(tensor.sizes(), scores);
  }

  // A view that gives the heads of all batches other dimensions.
  const char* split(std::vector<int64_t> sizes) {
    const auto from_elsewhere = std::find(sizes.begin(), sizes.end(), -1);
    if (from_elsewhere != sizes.end()) {
      int64_t others = 1;
      for (const int64_t size : sizes) others *= size == -1 ? 1 : size;
      const int64_t all = query_.size(0) * query_.size(1) * query_.size(2) * key_.size(2);
      if (others > 0 && all % others == 0) *from_elsewhere = all / others;
    }
    int64_t heads = 1;
    for (size_t i = 0; i + 2 < sizes.size(); ++i) heads *= sizes[i];
    if (sizes.size() < 3 || sizes.end()[-1] != key_.size(2) || sizes.end()[-2] != query_.size(2) ||
        heads != query_.size(0) * query_.size(1)) {
      return "a view divides more than its heads";
    }
    sizes.resize(sizes.size() - 2);
    split_ = sizes;
    return nullptr;
  }

  // The kernel keeps floats where the model rounds them to its own dtype and widens them again.
  const char* cast(at::ScalarType dtype) {
    if (dtype != at::kFloat && dtype != dtype_) return "a step gives another dtype";
    scores_dtype_ = dtype;
    return nullptr;
  }

  void promote(const at::Tensor& operand, bool is_in_place) {
    if (!is_in_place) scores_dtype_ = at::promote_types(scores_dtype_, operand.scalar_type());
  }

  const char* scale(double factor) {
    if (!masks_.empty() || grid_) return "its mask is scaled";
    scale_ *= factor;
    return std::abs(scale_) * largest_head_scale_ < 1e6 ? nullptr : "its scale is very large";
  }

  // By a factor for each head.
  const char* scale_heads(at::Tensor factors, bool divides, bool is_in_place) {
    const bool is_one_for_a_head = factors.dim() >= 2 && factors.size(-1) == 1 && factors.size(-2) == 1;
    if (split_ != batch_) return "a view stands before its scale";
    if (batch_.size() > 2) return "its scale is for heads of several batches";
    if (!has_float_rows(factors) || wants_gradient(factors) || !is_one_for_a_head || !fits_scores(factors)) {
      return "its scale is not a number for each head";
    }
    promote(factors, is_in_place);
    factors = factors.to(at::kFloat);
    if (batch_.size() == 1 && factors.dim() == 3) factors = factors.unsqueeze(1);
    if (divides) factors = factors.reciprocal();
    head_scales_ = head_scales_.defined() ? head_scales_ * factors : factors;
    largest_head_scale_ = head_scales_.abs().max().item<double>();
    return scale(1);
  }

  // The sum of the masks as yet, or zeros, shaped so that `other` can be put into it.
  at::Tensor mask_for(const at::Tensor& other) const {
    at::Tensor base = masks_.empty() ? at::zeros({}, at::kFloat) : masks_[0].values;
    if (masks_.size() > 1) base = base + masks_[1].values;
    return base.expand(at::infer_size(base.sizes(), other.sizes()));
  }

  const char* add_sides(const at::Tensor& rows, const at::Tensor& columns, at::IntArrayRef shape) {
    std::vector<int64_t> scores = split_;
    scores.insert(scores.end(), {query_.size(2), key_.size(2)});
    const bool has_room = masks_.size() < most_masks && !grid_ && !vanishes_ && !affines_;
    const auto grid = has_room ? grid_mask(rows, columns, shape, scores) : std::nullopt;
    if (!grid) return add(sum_of_sides(rows, columns, shape), /*is_in_place=*/false);
    promote(rows, /*is_in_place=*/false);
    grid_ = grid;
    return nullptr;
  }

  const char* add(const at::Tensor& addend, bool is_in_place) {
    if (!has_float_rows(addend) || addend.dim() == 0) return "its mask is no CPU tensor of float32 or 16 bits";
    if (wants_gradient(addend)) return "its mask requires a gradient";
    if (!fits_scores(addend)) return "its mask does not have the shape of the scores";
    if (vanishes_) return "a masked score may still count";
    promote(addend, is_in_place);
    const at::Tensor small = shrunk(addend).to(at::kFloat);
    if (masks_.size() + (grid_ ? 1 : 0) < most_masks) {
      masks_.push_back({small, split_});
    } else if (masks_.back().split == split_) {
      masks_.back().values = at::add(masks_.back().values, small);
    } else {
      return "it has masks of many shapes";
    }
    return nullptr;
  }

  // Puts `number` in the place of the scores where the mask is `where`. Adding it is the same where it swallows every
  // score, as float32's lowest number does, or where there is nothing left of it after exp.
  const char* fill(const at::Tensor& condition, bool where, double number) {
    constexpr double swallows_scores = -1e38, vanishes_in_exp = -104;
    if (condition.scalar_type() != at::kBool || !is_plain_cpu(condition)) {
      return "its mask is not a CPU tensor of bools";
    }
    if (!fits_scores(condition)) return "its mask does not have the shape of the scores";
    if (vanishes_) return "a masked score may still count";
    if (std::isfinite(number) && std::abs(number) > largest_of(scores_dtype_)) return "a number is very large";
    if (!(number <= swallows_scores)) {
      vanishes_ = true;
      if (!masks_.empty() || grid_ || !(number + largest_score() < vanishes_in_exp))
        return "a masked score may still count";
      number = -std::numeric_limits<double>::infinity();
    }
    for (const HeadMask& mask : masks_) {
      if (mask.split != split_) return "it has masks of many shapes";
    }
    const at::Tensor small = shrunk(condition);
    masks_ = {{at::masked_fill(mask_for(small), where ? small : small.logical_not(), number), split_}};
    return nullptr;
  }

  // No score is larger than this. Looks at every number once.
  double largest_score() const {
    const double query = affines_ ? most_of(affines_->query) : largest_magnitude(query_);
    const double key = affines_ ? most_of(affines_->key) : largest_magnitude(key_);
    return query * key * static_cast<double>(query_.size(-1)) * std::max(1.0, std::abs(scale_) * largest_head_scale_);
  }

  static double largest_of(at::ScalarType dtype) {
    if (dtype == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::max();
    if (dtype == at::kHalf) return std::numeric_limits<c10::Half>::max();
    return std::numeric_limits<double>::max();
  }

  // No number stands for more.
  static double most_of(const Affine& affine) { return 255 * affine.scale; }

  std::optional<AttentionAffines> affines_;
  at::ScalarType dtype_;  // of what query, key, value and result are or stand for
  at::ScalarType scores_dtype_ = dtype_;
  std::vector<at::ScalarType> dtypes_;  // of the scores after each step, as eager has them

  std::vector<int64_t> batch_;  // the dimensions of the query before the last two
  std::vector<int64_t> split_;  // those of the scores, after views
  at::Tensor query_, key_, value_;
  std::vector<HeadMask> masks_;
  std::optional<GridMask> grid_;
  double scale_ = 1;
  at::Tensor head_scales_;  // of [batch, heads, 1, 1], or broadcast to it; undefined for none
  double largest_head_scale_ = 1;
  bool vanishes_ = false;  // a masked score is -infinity in the mask and another number in eager: nothing may follow
};

bool are_last_two(int64_t a, int64_t b, int64_t rank) {
  const auto counted = [&](int64_t dimension) { return dimension < 0 ? dimension + rank : dimension; };
  return std::minmax({counted(a), counted(b)}) == std::pair(rank - 2, rank - 1);
}

// The result of the fused kernel, or undefined and a reason.
at::Tensor compute_fused(const at::Tensor& query, const at::Tensor& key_transposed, const at::Tensor& value,
                         Steps steps, Arguments arguments, bool eager_layout, bool rounds,
                         const std::optional<AttentionAffines>& affines, const char*& reason) {
  const bool stands_for_floats = steps.front() == of_16_bits;
  if (stands_for_floats) steps = steps.slice(1);
  const bool is_turned = runtime::is_turned(steps);
  const at::Tensor rows = is_turned && value.dim() > 1 ? value.transpose(-2, -1) : value;
  reason = at::autocast::is_autocast_enabled(at::kCPU)
               ? "autocast is on"
               : Fused::reason_against(query, key_transposed, rows, affines.has_value());
  if (reason) return {};
  Fused fused(query, key_transposed, rows, stands_for_floats, affines);
  for (size_t i = 0; !reason && i + 1 < steps.size(); ++i) reason = fused.add_step(steps[i], arguments);
  if (!reason) reason = fused.reason_at_the_end();
  if (!reason && is_turned && !are_last_two(arguments.integer(), arguments.integer(), query.dim())) {
    reason = "its weights are not transposed";
  }
  if (!reason && is_spread(steps)) {
    const int64_t rank = arguments.integer();
    if (rank != 0 && rank != query.dim()) reason = "its weights have other dimensions";
  }
  if (reason) return {};
  at::Tensor result = fused.run(eager_layout && !is_turned, rounds);
  if (!result.defined()) reason = "a number is not finite or very large, or a query sees no key";
  if (!result.defined() || !is_turned) return result;
  const at::Tensor turned_back = result.transpose(-2, -1);
  return eager_layout ? with_format(turned_back, at::MemoryFormat::Contiguous) : turned_back;
}

void check_steps(const std::vector<std::string>& steps) {
  const size_t least = !steps.empty() && steps.front() == of_16_bits ? 4 : 3;
  TORCH_CHECK(steps.size() >= least, "ipex::attention: expected at least ", least, " steps, got ", steps.size(),
              damaged);
}

at::Tensor attention(const at::Tensor& query, const at::Tensor& key_transposed, const at::Tensor& value,
                     const std::vector<std::string>& steps, const std::vector<at::Tensor>& operands,
                     const std::vector<double>& numbers, bool eager_layout, std::optional<int64_t> math_mode) {
  check_steps(steps);
  const Arguments arguments(operands, numbers);
  const char* reason = nullptr;
  at::Tensor result = compute_fused(query, key_transposed, value, steps, arguments, eager_layout,
                                    rounds_in("ipex::attention", math_mode), /*affines=*/std::nullopt, reason);
  if (result.defined()) return result;
  const LeftToAten left(reason, "ipex::attention");
  return compute_steps(query, key_transposed, value, steps, arguments);
}

at::Tensor attention_of_bytes(const at::Tensor& query, const at::Tensor& key_transposed, const at::Tensor& value,
                              const std::vector<std::string>& steps, const std::vector<at::Tensor>& operands,
                              const std::vector<double>& numbers, bool eager_layout, const std::vector<double>& scales,
                              const std::vector<double>& rounded) {
  constexpr const char* where = "ipex::attention_of_bytes";
  const std::optional<Affine> rounding = affine_of(where, rounded);
  check_steps(steps);
  check_bytes(where, {query, key_transposed, value});
  const AttentionAffines affines = attention_affines(where, scales, rounding);
  const Arguments arguments(operands, numbers);
  const char* reason = nullptr;
  const at::Tensor result = compute_fused(query, key_transposed, value, steps, arguments, eager_layout,
                                          /*rounds=*/false, affines, reason);
  if (result.defined()) return result;
  const LeftToAten left(reason, where);
  const at::Tensor y = compute_steps(dequantize(query, affines.query), dequantize(key_transposed, affines.key),
                                     dequantize(value, affines.value), steps, arguments);
  return rounding ? quantize(y.to(at::kFloat), *rounding) : y;
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  const std::string given =
      "(Tensor query, Tensor key_transposed, Tensor value, str[] steps, Tensor[] operands, float[] numbers, "
      "bool eager_layout, ";
  define(m, "attention_of_bytes" + given + "float[] scales, float[] rounded=[]) -> Tensor", attention_of_bytes);
  define(m, "attention" + given + "int? math_mode=None) -> Tensor", attention);
}

}  // namespace
}  // namespace ipex::runtime
