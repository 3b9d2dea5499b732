// linear whose weight alone is kept in few bits (low_bit_format.h), in groups of inputs or a row at a time.
//
//   ipex::weight_only_linear_prepack(weight, bias, post_ops, format, group_size, symmetric) -> WeightOnlyLinearContext
//   ipex::weight_only_linear_run(input, context, operands, eager_layout) -> Tensor
//
// Inputs stay float32. A few rows wait for the weight to be read: it is a half to an eighth of the float32 one, and becomes
// floats in registers. For many rows each panel of it becomes floats in scratch memory, and many_rows.h multiplies.
//
// Of weights that somebody else has quantised (LowBitSpec has these tensors):
//
//   ipex::weight_only_linear_prepack.codes(codes, scales, offsets, order, bias, post_ops, inputs, group_size, row_bits, values)
//   ipex::weight_only_linear(input, codes, scales, offsets, order, bias, inputs, group_size, row_bits, values) -> Tensor
//
// And of a weight that is packed already, as the modules of ipex.quantization hold it:
//
//   ipex::weight_only_linear_prepack.again(packed, post_ops, row_bits) -> WeightOnlyLinearContext    of the same memory
//   ipex::rows_of_codes(indices, context) -> Tensor    rows of it, in floats
//
// The second is what a model says before it is optimised, where its codes are not packed. It computes with the numbers that the
// codes stand for, in aten. Where `row_bits` is 8 or 16 the run op may round the rows to so many bits, in groups as the weight
// has them.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <cstring>
#include <numeric>

#include "kernels/kernels.h"
#include "memory/result_memory.h"
#include "memory/scratch.h"
#include "memory/weight_memory.h"
#include "ops/product/look_up_rows.h"
#include "ops/product/round_weight.h"
#include "ops/product/tile_product.h"
#include "ops/product/weight_only_linear.h"
#include "packed/call_conditions.h"
#include "packed/door.h"
#include "packed/expect_tensor.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

constexpr const char* op_name = "ipex::weight_only_linear_run";

// With more, making floats of a panel once is as fast. As measured: the longer a format takes to become floats, the sooner
// (docs/decisions/weight_formats.md).
int64_t most_rows_of_codes(CodeFormat format) {
  switch (format) {
    case CodeFormat::int4:
    case CodeFormat::table:
      return 12;
    case CodeFormat::e4m3:
      return 30;
    case CodeFormat::bf16:
    case CodeFormat::e5m2:
      return 48;
    case CodeFormat::int8:
      return 64;
  }
  return 0;
}

int64_t rounded_up(int64_t count, int64_t size) { return at::divup(count, size) * size; }

CodeWord word_here(CodeFormat format) {
  const int64_t bytes = kernels().codes_product.int8_in_word;
  return format == CodeFormat::int8 ? CodeWord{bytes, bytes} : word_of(format);
}

// Whether a code less its offset is a bfloat16 number.
bool are_short(const at::Tensor& offsets) {
  constexpr double most = 128;
  return !offsets.defined() || (offsets.eq(offsets.round()) & offsets.abs().le(most)).all().item<bool>();
}

// As kernels/codes_product.h wants them.
class PanelsOfCodes final : public PackedCodes {
 public:
  PanelsOfCodes(const LowBitSpec& spec, const LowBitFormat& format, const StoredForms& stored)
      : outputs_(spec.outputs()),
        inputs_(spec.inputs),
        format_(format),
        word_(word_here(format.codes)),
        order_(spec.order),
        has_row_scales_(spec.groups() == 1),
        has_short_offsets_(are_short(spec.offsets)),
        panel_columns_(kernels().codes_product.panel_columns),
        panels_(at::divup(outputs_, panel_columns_)) {
    // Where a row has one scale, it is written down many times: sums of sums round less.
    constexpr int64_t most_at_once = 128;
    group_size_ = has_row_scales_ ? std::min(most_at_once, rounded_up(inputs_, codes_of_a_word)) : spec.group_size;
    groups_ = at::divup(inputs_, group_size_);
    const auto get = [&](const char* what, const FormShape& shape, StoredForms::Make make) {
      const std::string words = word_.numbers == 1 ? "" : c10::str(", words of ", word_.numbers);
      return stored.get(c10::str(what, ", ", panel_columns_, " columns, groups of ", group_size_, words), shape, make);
    };
    const FormShape of_groups{at::kFloat, {panels_ * groups_ * panel_columns_}};
    bytes_ = get(format.name, {at::kByte, {byte_count()}}, [&] { return codes_in_panels(spec.codes); });
    scales_ = get("scales", of_groups, [&] { return in_panels(spec.scales); });
    if (spec.offsets.defined()) {
      offsets_ = get("offsets", of_groups, [&] { return in_panels(spec.offsets); });
    }
  }

  at::Tensor codes() const override {
    const OutsideOfPythonModes outside;
    at::Tensor codes = at::zeros({outputs_, format_.row_length(inputs_)}, format_.dtype);
    const auto* bytes = bytes_.const_data_ptr<uint8_t>();
    auto* const to = static_cast<uint8_t*>(codes.mutable_data_ptr());
    const auto row_bytes = static_cast<int64_t>(codes.nbytes()) / outputs_;
    parallel_for(panels_, 1, [&](int64_t first, int64_t last) {
      for (int64_t panel = first; panel < last; ++panel) {
        for_words(panel, row_bytes,
                  [&](int64_t size, int64_t here, int64_t there) { copy_word(bytes + there, to + here, size); });
      }
    });
    return codes;
  }

  at::Tensor scales() const override { return out_of_panels(scales_); }
  at::Tensor offsets() const override { return offsets_.defined() ? out_of_panels(offsets_) : offsets_; }

  // With so many digits for a number of the rows, where the kernels take digits.
  void multiply(const InputRows& rows, int digits, const ElementwiseSteps& steps, float* result) const {
    multiplies_codes(rows.count) ? multiply_codes({{this, steps, result, -1, 0, rows.count}}, rows, digits)
                                 : multiply_many(rows, steps, result);
  }

  // A row of the weight in floats.
  void put_row(int64_t output, float* to) const {
    switch (format_.codes) {
      case CodeFormat::int8:
        return put_numbers(output, to, [](const uint8_t* at, int64_t) { return static_cast<int8_t>(*at); });
      case CodeFormat::int4:  // the sign is bit 3
        return put_numbers(output, to, [](const uint8_t* at, int64_t k) { return (half(*at, k) ^ 8) - 8; });
      case CodeFormat::table:
        return put_numbers(output, to, [&](const uint8_t* at, int64_t k) { return format_.values[half(*at, k)]; });
      case CodeFormat::e4m3:
        return put_numbers(output, to, [](const uint8_t* at, int64_t) { return float_of<c10::Float8_e4m3fn>(at); });
      case CodeFormat::e5m2:
        return put_numbers(output, to, [](const uint8_t* at, int64_t) { return float_of<c10::Float8_e5m2>(at); });
      case CodeFormat::bf16:
        return put_numbers(output, to, [](const uint8_t* at, int64_t) { return float_of<c10::BFloat16>(at); });
    }
  }

  // Whether few rows meet the codes as they are, or digits do. Else panels of the weight become floats, or tiles, for many rows.
  bool multiplies_codes(int64_t rows) const {
    return !gains_by_tiles(rows) && (rows <= most_rows_of_codes(format_.codes) || have_digits());
  }

  // Whether what is made of rows for one matrix is what another one wants.
  bool reads_rows_as(const PanelsOfCodes& other) const {
    return inputs_ == other.inputs_ && &format_ == &other.format_ && group_size_ == other.group_size_ &&
           offsets_.defined() == other.offsets_.defined() && !order_.defined() && !other.order_.defined();
  }

  struct Layer {
    const PanelsOfCodes* matrix;
    ElementwiseSteps steps;
    float* result;
    int64_t after = -1;  // the layer whose result its steps read, column by column: of as many columns
    // The rows that it reads: those of the layer before it, or behind these.
    int64_t first_row, row_count;
  };

  // Layers that read rows alike, as one parallel region.
  static void multiply_codes(at::ArrayRef<Layer> layers, const InputRows& rows, int digits) {
    const PanelsOfCodes& first = *layers[0].matrix;
    const int64_t depth = first.depth();
    at::Tensor memory;
    const PreparedRows prepared = first.room_for(rows.count, digits, memory);
    constexpr int64_t numbers_worth_waking = 1 << 15, elements_worth_waking = 1 << 15;
    parallel_for(rows.count, grain_of(rows.count, rows.count * depth, numbers_worth_waking),
                 [&](int64_t begin, int64_t end) {
                   int64_t row = begin;
                   for (const Layer& layer : layers) {
                     const PreparedRows own = prepared.from(layer.first_row, first);
                     for (; row < std::min(end, layer.first_row + layer.row_count); ++row) {
                       first.prepare(rows.first + row * rows.stride, row - layer.first_row, layer.row_count, own);
                     }
                   }
                 });
    c10::SmallVector<CodesProduct, 3> products;
    c10::SmallVector<int64_t, 4> starts{0};
    int64_t elements = 0;
    bool spreads_codes = false;
    for (const Layer& layer : layers) {
      const PreparedRows own = prepared.from(layer.first_row, first);
      products.push_back({.rows = own.padded ? own.padded : rows.first + layer.first_row * rows.stride,
                          .row_stride = own.padded ? depth : rows.stride,
                          .row_count = layer.row_count,
                          .group_sums = own.group_sums,
                          .digits = own.digits,
                          .matrix = layer.matrix->matrix(),
                          .steps = layer.steps,
                          .result = layer.result});
      const int64_t panels = layer.after < 0 ? layer.matrix->panels_ : 0;
      starts.push_back(starts.back() + panels);
      elements += layer.row_count * panels * depth * first.panel_columns_;
      spreads_codes |= first.spreads_codes(layer.row_count, digits);
    }
    const int64_t panels = starts.back();
    const auto multiply = kernels().codes_product.multiply;
    parallel_for(panels, grain_of(panels, elements, elements_worth_waking), [&](int64_t begin, int64_t end) {
      const at::Tensor memory_of_bytes = spreads_codes ? scratch(depth * first.panel_columns_) : at::Tensor();
      auto* const bytes = spreads_codes ? static_cast<char*>(memory_of_bytes.data_ptr()) : nullptr;
      for (size_t i = 0; i < products.size(); ++i) {
        // One that comes after another has the same panels, which the same thread has just multiplied.
        const size_t of = layers[i].after < 0 ? i : static_cast<size_t>(layers[i].after);
        const int64_t own_begin = std::max(begin, starts[of]), own_end = std::min(end, starts[of + 1]);
        char* const room = first.spreads_codes(layers[i].row_count, digits) ? bytes : nullptr;
        if (own_begin < own_end) multiply(products[i], own_begin - starts[of], own_end - starts[of], room);
      }
    });
  }

 private:
  int64_t depth() const { return groups_ * group_size_; }
  int64_t byte_count() const { return panels_ * depth() * panel_columns_ * word_.bytes / word_.numbers; }

  CodesMatrix matrix() const {
    return {format_.codes,
            bytes_.const_data_ptr<uint8_t>(),
            scales_.const_data_ptr<float>(),
            offsets_.defined() ? offsets_.const_data_ptr<float>() : nullptr,
            group_size_,
            groups_,
            format_.values};
  }

  // The first byte of a code. Two neighbours of int4 share it.
  int64_t place(int64_t output, int64_t k) const {
    const int64_t panel = output / panel_columns_, column = output % panel_columns_;
    const int64_t word = (panel * depth() + k) / word_.numbers * panel_columns_ + column;
    return word * word_.bytes + k % word_.numbers * word_.bytes / word_.numbers;
  }

  // `visit(bytes, first in the saved codes, first in panels)` for each word of a panel, as the panel has them: a word's codes lie
  // as in a row.
  template <typename Visit>
  void for_words(int64_t panel, int64_t row_bytes, Visit&& visit) const {
    const int64_t first = panel * panel_columns_, columns = std::min(panel_columns_, outputs_ - first);
    int64_t there = place(first, 0);
    for (int64_t here = 0; here < row_bytes; here += word_.bytes, there += panel_columns_ * word_.bytes) {
      const int64_t bytes = std::min(word_.bytes, row_bytes - here);
      for (int64_t column = 0; column < columns; ++column) {
        visit(bytes, (first + column) * row_bytes + here, there + column * word_.bytes);
      }
    }
  }

  static void copy_word(const uint8_t* from, uint8_t* to, int64_t bytes) {
    constexpr int64_t usual = 4;  // one instruction
    bytes == usual ? static_cast<void>(std::memcpy(to, from, usual)) : static_cast<void>(std::copy_n(from, bytes, to));
  }

  // A code in the lower half of a byte, or the upper one.
  static int half(uint8_t byte, int64_t k) { return k % 2 == 0 ? byte & 15 : byte >> 4; }

  template <typename Float>
  static float float_of(const uint8_t* at) {
    Float number;
    std::memcpy(&number, at, sizeof(number));
    return number;
  }

  template <typename NumberOf>
  void put_numbers(int64_t output, float* to, NumberOf&& number_of) const {
    const auto* bytes = bytes_.const_data_ptr<uint8_t>();
    const auto* order = order_.defined() ? order_.const_data_ptr<int64_t>() : nullptr;
    const auto* scales = scales_.const_data_ptr<float>();
    const auto* offsets = offsets_.defined() ? offsets_.const_data_ptr<float>() : nullptr;
    const uint8_t* word = bytes + place(output, 0);
    int64_t group = output / panel_columns_ * groups_ * panel_columns_ + output % panel_columns_;
    for (int64_t first = 0; first < inputs_; first += group_size_, group += panel_columns_) {
      const float scale = scales[group], offset = offsets ? offsets[group] : 0.f;
      const int64_t end = std::min(inputs_, first + group_size_);
      for (int64_t k = first; k < end; k += word_.numbers, word += panel_columns_ * word_.bytes) {
        for (int64_t i = 0; i < std::min(word_.numbers, end - k); ++i) {
          const auto code = static_cast<float>(number_of(word + i * format_.bits / 8, i));
          to[order ? order[k + i] : k + i] = (code - offset) * scale;
        }
      }
    }
  }

  at::Tensor codes_in_panels(const at::Tensor& codes) const {
    at::Tensor result = zero_weight({byte_count()}, at::kByte);
    auto* bytes = result.mutable_data_ptr<uint8_t>();
    const auto* saved = static_cast<const uint8_t*>(codes.const_data_ptr());
    const auto row_bytes = static_cast<int64_t>(codes.nbytes()) / outputs_;
    parallel_for(panels_, 1, [&](int64_t first, int64_t last) {
      for (int64_t panel = first; panel < last; ++panel) {
        for_words(panel, row_bytes,
                  [&](int64_t size, int64_t here, int64_t there) { copy_word(saved + here, bytes + there, size); });
      }
    });
    return result;
  }

  at::Tensor in_panels(const at::Tensor& of_groups) const {
    at::Tensor in_panels = zero_weight({panels_ * groups_ * panel_columns_}, at::kFloat);
    auto* panels = in_panels.mutable_data_ptr<float>();
    const auto* from = of_groups.const_data_ptr<float>();
    for (int64_t output = 0; output < outputs_; ++output) {
      for (int64_t group = 0; group < groups_; ++group) {
        const int64_t panel = output / panel_columns_, column = output % panel_columns_;
        panels[(panel * groups_ + group) * panel_columns_ + column] =
            has_row_scales_ ? from[output] : from[output * groups_ + group];
      }
    }
    return in_panels;
  }

  // What `in_panels` was made of.
  at::Tensor out_of_panels(const at::Tensor& in_panels) const {
    const OutsideOfPythonModes outside;
    const int64_t groups = has_row_scales_ ? 1 : groups_;
    at::Tensor of_groups = at::empty({outputs_, groups}, at::kFloat);
    auto* to = of_groups.mutable_data_ptr<float>();
    const auto* panels = in_panels.const_data_ptr<float>();
    for (int64_t output = 0; output < outputs_; ++output) {
      const int64_t panel = output / panel_columns_, column = output % panel_columns_;
      for (int64_t group = 0; group < groups; ++group) {
        to[output * groups + group] = panels[(panel * groups_ + group) * panel_columns_ + column];
      }
    }
    return of_groups;
  }

  // In the order of the codes.
  void copy_row(const float* from, float* to) const {
    if (!order_.defined()) {
      std::copy_n(from, inputs_, to);
      return;
    }
    const auto* order = order_.const_data_ptr<int64_t>();
    for (int64_t k = 0; k < inputs_; ++k) to[k] = from[order[k]];
  }

  // Whether the kernels multiply rows as digits. Three of them are faster than floats are, too.
  bool have_digits() const {
    const bool is_integer = format_.codes == CodeFormat::int8 || format_.codes == CodeFormat::int4;
    return is_integer && kernels().codes_product.to_digits;
  }

  // Whether so many blocks of digits meet a panel that it is worth to make bytes of its codes once. With more digits of a number
  // it never is: each code is met as often.
  bool spreads_codes(int64_t rows, int digits) const {
    constexpr int64_t least_rows = 24;
    return have_digits() && digits == 1 && rows >= least_rows;
  }

  // What is made of the rows before they are multiplied. Null for what isn't needed.
  struct PreparedRows {
    float *padded, *group_sums;
    DigitRows digits;

    // Those of the rows from this one on.
    PreparedRows from(int64_t row, const PanelsOfCodes& matrix) const {
      const int64_t numbers = row * matrix.depth(), groups = row * matrix.groups_;
      const auto moved = [](auto* first, int64_t by) { return first ? first + by : nullptr; };
      return {moved(padded, numbers),
              moved(group_sums, groups),
              {digits.count, moved(digits.digits, numbers * digits.count), moved(digits.starts, groups * digits.count),
               moved(digits.scales, groups)}};
    }
  };

  PreparedRows room_for(int64_t rows, int row_digits, at::Tensor& memory) const {
    const int digits = have_digits() ? row_digits : 0;
    const bool copies = depth() != inputs_ || order_.defined();
    const int64_t copied = copies ? rows * depth() : 0, summed = offsets_.defined() ? rows * groups_ : 0,
                  scales = digits > 0 ? rows * groups_ : 0, starts = rows * groups_ * digits,
                  bytes = static_cast<int64_t>(sizeof(float)) * (copied + summed + scales + starts) +
                          rows * depth() * digits;
    if (bytes == 0) return {};
    // A thread has one piece of scratch memory.
    memory = spreads_codes(rows, digits) ? empty_result({bytes}, at::kByte) : scratch(bytes);
    auto* const room = static_cast<float*>(memory.data_ptr());
    auto* const first_start = reinterpret_cast<int32_t*>(room + copied + summed + scales);
    return {copies ? room : nullptr,
            summed > 0 ? room + copied : nullptr,
            {digits, reinterpret_cast<int8_t*>(first_start + starts), first_start, room + copied + summed}};
  }

  void prepare(const float* from, int64_t row, int64_t rows, const PreparedRows& to) const {
    if (to.padded) {
      float* const padded = to.padded + row * depth();
      copy_row(from, padded);
      std::fill(padded + inputs_, padded + depth(), 0.f);
      from = padded;
    }
    float* const sums = to.group_sums ? to.group_sums + row * groups_ : nullptr;
    if (to.digits.count > 0) {
      kernels().codes_product.to_digits(from, matrix(), row, rows, to.digits, sums);
      if (to.digits.scales[row * groups_] != 0) return;
    }
    for (int64_t group = 0; sums && group < groups_; ++group) {
      sums[group] =
          static_cast<float>(std::accumulate(from + group * group_size_, from + (group + 1) * group_size_, 0.));
    }
  }

  void multiply_many(InputRows rows, const ElementwiseSteps& steps, float* result) const {
    at::Tensor ordered;  // not in scratch memory, which the threads need
    if (order_.defined()) {
      ordered = empty_result({rows.count, inputs_}, at::kFloat);
      auto* to = ordered.mutable_data_ptr<float>();
      for (int64_t row = 0; row < rows.count; ++row) copy_row(rows.first + row * rows.stride, to + row * inputs_);
      rows = {to, rows.count, inputs_};
    }
    gains_by_tiles(rows.count) ? multiply_tiles(rows, steps, result)
                               : multiply_floats(rows, steps, result, 0, rows.count);
  }

  bool gains_by_tiles(int64_t rows) const {
    return runtime::gains_by_tiles(rows, inputs_, outputs_, parts_of_a_number());
  }

  // A code, less its offset, has one; a value of a table has three. Its number has three, but groups that are large take their scale at their end.
  int64_t parts_of_a_number() const {
    constexpr int64_t least_blocks = 2;
    const bool scales_sums =
        has_row_scales_ || (group_size_ % tile_depth == 0 && group_size_ / tile_depth >= least_blocks);
    return scales_sums && has_short_offsets_ && !format_.values ? 1 : parts_of_floats;
  }

  void multiply_tiles(const InputRows& rows, const ElementwiseSteps& steps, float* result) const {
    const auto& kernel = kernels().codes_product;
    const auto put_codes = [&](int64_t panel, int64_t first, int64_t last, void* to, float*) {
      kernel.codes_as_tiles(matrix(), panel, first, last, to);
    };
    const auto split_floats = [&](int64_t panel, int64_t first, int64_t last, void* to, float* room) {
      const int64_t first_group = first * tile_depth / group_size_,
                    last_group = std::min(groups_, at::divup(last * tile_depth, group_size_));
      kernel.expand(matrix(), panel, first_group, last_group, room);
      const int64_t there = std::min(last - first, at::divup(inputs_, tile_depth) - first) * tile_depth;
      kernels().optional.tile_product->split_panel(
          room, panel_columns_, std::min(there, (last_group - first_group) * group_size_), panel_columns_, to);
    };
    const bool has_codes = parts_of_a_number() == 1;
    const TileMatrix tiles{
        .depth = inputs_,
        .panel_columns = panel_columns_,
        .parts = parts_of_a_number(),
        .scales = has_codes ? scales_.const_data_ptr<float>() : nullptr,
        .scale_stride = groups_ * panel_columns_,
        .blocks_of_a_group = has_codes && !has_row_scales_ ? group_size_ / tile_depth : 0,
        .source = bytes_.const_data_ptr(),
        .panel_bytes = byte_count() / panels_,
        .blocks_of_a_unit = has_codes && has_row_scales_ ? 1 : std::lcm(group_size_, tile_depth) / tile_depth,
        .fill = has_codes ? TileMatrix::Fill(put_codes) : TileMatrix::Fill(split_floats)};
    multiply_by_tiles(rows, tiles, steps, result,
                      [&](int64_t first, int64_t last) { multiply_floats(rows, steps, result, first, last); });
  }

  // The rows from the first to the last.
  void multiply_floats(const InputRows& rows, const ElementwiseSteps& steps, float* result, int64_t first_row,
                       int64_t last_row) const {
    parallel_for(panels_, /*grain_size=*/1, [&](int64_t first, int64_t last) {
      const at::Tensor memory = scratch(sizeof(float) * depth() * panel_columns_);
      auto* floats = static_cast<float*>(memory.data_ptr());
      const RowsProduct product{.rows = rows.first,
                                .row_stride = rows.stride,
                                .row_count = rows.count,
                                .matrix = {NumberFormat::floats, floats, inputs_},
                                .panel_columns = panel_columns_,
                                .panel_size = 0,  // one panel after the other lies there
                                .steps = steps,
                                .result = result,
                                .result_stride = steps.columns};
      for (int64_t panel = first; panel < last; ++panel) {
        kernels().codes_product.expand(matrix(), panel, 0, groups_, floats);
        kernels().many_rows.multiply(product, first_row, last_row, panel, panel + 1);
      }
    });
  }

  const int64_t outputs_, inputs_;
  const LowBitFormat& format_;
  const CodeWord word_;
  const at::Tensor order_;
  const bool has_row_scales_, has_short_offsets_;
  const int64_t panel_columns_, panels_;
  int64_t group_size_, groups_;
  at::Tensor bytes_, scales_, offsets_;
};

}  // namespace

WeightOnlyLinearContext::Pointer WeightOnlyLinearContext::again(const Pointer& packed,
                                                                const std::vector<std::string>& post_ops,
                                                                std::optional<int64_t> row_bits) {
  const int64_t bits = row_bits.value_or(packed->spec().row_bits);
  if (post_ops.empty() && bits == packed->spec().row_bits) return packed;
  std::vector<std::string> all = packed->post_op_texts();
  all.insert(all.end(), post_ops.begin(), post_ops.end());
  return c10::make_intrusive<WeightOnlyLinearContext>(*packed, all, bits);
}

WeightOnlyLinearContext::Pointer WeightOnlyLinearContext::load(const State& state) {
  return c10::make_intrusive<WeightOnlyLinearContext>(low_bit_spec(op_name, state));
}

std::unique_ptr<const PackedCodes> WeightOnlyLinearContext::pack(const LowBitSpec& spec) const {
  return std::make_unique<const PanelsOfCodes>(spec, format(), stored_forms());
}

void WeightOnlyLinearContext::multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const {
  static_cast<const PanelsOfCodes&>(packed()).multiply(rows, digits(), steps, result);
}

at::Tensor WeightOnlyLinearContext::embed(const at::Tensor& indices) const {
  TORCH_CHECK(is_plain_cpu(indices) && (indices.scalar_type() == at::kLong || indices.scalar_type() == at::kInt),
              "ipex::rows_of_codes: expected int64 or int32 indices on the CPU, got ", text_of(indices),
              ". Convert them first.");
  const auto& matrix = static_cast<const PanelsOfCodes&>(packed());
  return look_up_rows(indices, inputs(), [&](int64_t row, float* to) {
    TORCH_CHECK_INDEX(row >= 0 && row < outputs(), "ipex::rows_of_codes: expected indices from 0 to ", outputs() - 1,
                      ", got ", row, ". The model has no more rows.");
    matrix.put_row(row, to);
  });
}

bool WeightOnlyLinearContext::reads_rows_as(const WeightOnlyLinearContext& other) const {
  const auto &matrix = static_cast<const PanelsOfCodes&>(packed()),
             &of_other = static_cast<const PanelsOfCodes&>(other.packed());
  return this == &other || (digits() == other.digits() && matrix.reads_rows_as(of_other));
}

const char* WeightOnlyLinearContext::rows_are() const {
  return spec().row_bits == 8 ? "8 bits" : spec().row_bits == 16 ? "16 bits" : "float32";
}

std::vector<at::Tensor> WeightOnlyLinearContext::run_at_once(Layers layers, const at::Tensor& input,
                                                             at::IntArrayRef operands) {
  for (const auto& layer : layers) {
    if (!layer->takes(input)) return {};
  }
  const std::optional<InputRows> strided = rows_of(input);
  const at::Tensor dense = strided ? at::Tensor() : contiguous_result(input);
  const InputRows rows = strided ? *strided : *rows_of(dense);
  std::vector<at::Tensor> results;
  std::vector<StepsOfCall> steps(layers.size());
  c10::SmallVector<PanelsOfCodes::Layer, 3> own;
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto& matrix = static_cast<const PanelsOfCodes&>(layers[i]->packed());
    if (!matrix.multiplies_codes(rows.count) || !layers[i]->reads_rows_as(*layers[0])) return {};
    const int64_t from = operands[i];
    if (from >= 0 && (operands[static_cast<size_t>(from)] >= 0 || !layers[i]->is_as_wide_as(*layers[from]))) return {};
    const at::DimVector sizes = layers[i]->result_sizes(input);
    std::vector<at::Tensor> read;
    if (from >= 0) read.push_back(results[static_cast<size_t>(from)]);
    if (!layers[i]->all_steps(read, sizes, steps[i])) return {};
    results.push_back(empty_result(sizes, at::kFloat));
    own.push_back({&matrix, steps[i].steps, results.back().data_ptr<float>(), from, 0, rows.count});
  }
  PanelsOfCodes::multiply_codes(own, rows, layers[0]->digits());
  return results;
}

bool WeightOnlyLinearContext::run_in_groups(at::ArrayRef<Group> groups, const at::Tensor& input,
                                            const at::Tensor& result) {
  const std::optional<InputRows> rows = rows_of(input);
  if (groups.empty() || !rows) return false;
  std::vector<StepsOfCall> steps(groups.size());
  c10::SmallVector<PanelsOfCodes::Layer, 8> own;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& [layer, first, count] = groups[i];
    if (!layer->takes(input)) return false;
    const auto& matrix = static_cast<const PanelsOfCodes&>(layer->packed());
    if (!matrix.multiplies_codes(count) || !layer->reads_rows_as(*groups[0].layer)) return false;
    if (!layer->all_steps({}, layer->result_sizes(input), steps[i])) return false;
    own.push_back(
        {&matrix, steps[i].steps, result.data_ptr<float>() + first * layer->output_width(), -1, first, count});
  }
  const ProfilerNote note([&] { return c10::str("ipex::grouped_linear_run by ", own.size(), " groups at once"); });
  PanelsOfCodes::multiply_codes(own, *rows, groups[0].layer->digits());
  return true;
}

namespace {

c10::intrusive_ptr<WeightOnlyLinearContext> prepack_rounded(const at::Tensor& weight,
                                                            const std::optional<at::Tensor>& bias,
                                                            std::vector<std::string> post_ops,
                                                            const std::string& format_name, int64_t group_size,
                                                            bool symmetric) {
  const LowBitFormat* format = low_bit_format(format_name);
  TORCH_CHECK(format, op_name, ": expected one of ", low_bit_format_names(), ", got '", format_name, "'.");
  TORCH_CHECK(group_size == 0 || (group_size >= 8 && group_size % 8 == 0), op_name,
              ": expected a group_size of a multiple of 8, or 0 for whole rows, got ", group_size, ".");
  auto context = c10::make_intrusive<WeightOnlyLinearContext>(
      quantized(op_name, weight, bias, std::move(post_ops), *format, group_size, symmetric));
  context->ensure_packed();
  return context;
}

at::Tensor or_none(const std::optional<at::Tensor>& tensor) { return tensor.value_or(at::Tensor()); }

}  // namespace

c10::intrusive_ptr<WeightOnlyLinearContext> weight_only_linear_prepack(
    const at::Tensor& codes, const at::Tensor& scales, const std::optional<at::Tensor>& offsets,
    const std::optional<at::Tensor>& order, const std::optional<at::Tensor>& bias, std::vector<std::string> post_ops,
    int64_t inputs, int64_t group_size, int64_t row_bits, const std::optional<at::Tensor>& values) {
  auto context = c10::make_intrusive<WeightOnlyLinearContext>(
      LowBitSpec{op_name, codes, scales, or_none(offsets), or_none(bias), or_none(order), std::move(post_ops), inputs,
                 group_size, /*follows_input=*/true, row_bits, or_none(values)});
  context->ensure_packed();
  return context;
}

// As the packed op computes it, where the user runs the model as it is.
at::Tensor weight_only_linear(const at::Tensor& input, const at::Tensor& codes, const at::Tensor& scales,
                              const std::optional<at::Tensor>& offsets, const std::optional<at::Tensor>& order,
                              const std::optional<at::Tensor>& bias, int64_t inputs, int64_t group_size,
                              int64_t /*row_bits*/, const std::optional<at::Tensor>& values) {
  const LowBitFormat* format = low_bit_format(codes.scalar_type(), values.has_value());
  TORCH_CHECK(format && codes.dim() == 2 && inputs > 0 && group_size > 0 && codes.size(1) == format->row_length(inputs),
              "ipex::weight_only_linear: expected a weight of one of ", low_bit_format_names(), " for ", inputs,
              " inputs, got ", codes.scalar_type(), " ", codes.sizes(), ".");
  return linear_of_numbers(
      input, {op_name, codes, scales, or_none(offsets), or_none(bias), or_none(order),
              /*post_ops=*/{}, inputs, group_size, /*follows_input=*/true, /*row_bits=*/24, or_none(values)});
}

namespace {

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_context<WeightOnlyLinearContext>(m, "WeightOnlyLinearContext");
  define(m,
         "weight_only_linear_prepack(Tensor weight, Tensor? bias, str[] post_ops, str format, int group_size, "
         "bool symmetric) -> __torch__.torch.classes.ipex.WeightOnlyLinearContext",
         prepack_rounded);
  define(m,
         "weight_only_linear_prepack.codes(Tensor codes, Tensor scales, Tensor? offsets, Tensor? order, Tensor? bias, "
         "str[] post_ops, int inputs, int group_size, int row_bits=24, Tensor? values=None) -> "
         "__torch__.torch.classes.ipex.WeightOnlyLinearContext",
         weight_only_linear_prepack);
  define(m,
         "weight_only_linear_prepack.again(__torch__.torch.classes.ipex.WeightOnlyLinearContext packed, "
         "str[] post_ops, int? row_bits=None) -> __torch__.torch.classes.ipex.WeightOnlyLinearContext",
         WeightOnlyLinearContext::again);
  define(m, "rows_of_codes(Tensor indices, __torch__.torch.classes.ipex.WeightOnlyLinearContext context) -> Tensor",
         [](const at::Tensor& indices, const WeightOnlyLinearContext::Pointer& context) {
           return context->embed(indices);
         });
  define(m,
         "weight_only_linear(Tensor input, Tensor codes, Tensor scales, Tensor? offsets, Tensor? order, Tensor? bias, "
         "int inputs, int group_size, int row_bits=24, Tensor? values=None) -> Tensor",
         weight_only_linear);
  define(m,
         "weight_only_linear_run(Tensor input, __torch__.torch.classes.ipex.WeightOnlyLinearContext context, "
         "Tensor[] operands, bool eager_layout) -> Tensor",
         OnStack{run_boxed<WeightOnlyLinearContext>});
}

}  // namespace
}  // namespace ipex::runtime
