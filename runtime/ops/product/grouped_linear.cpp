// Rows in groups, each times a matrix of its own: the experts of a mixture.
//
//   ipex::grouped_linear_prepack(layers) -> GroupedLinearContext
//   ipex::grouped_linear_run(input, offsets, context) -> Tensor
//
// Rows offsets[i - 1] to offsets[i] of the input go through layer i, a linear without bias. It is aten::_grouped_mm with
// packed weights, and each group is multiplied as ipex::linear_run would. Rows behind the last offset are zeros; aten leaves
// whatever was in memory there. Where the call is no ordinary one, aten computes it from the plain weights.
//
// Of weights that are codes (weight_only_linear.cpp), with a dimension more in front, the groups:
//
//   ipex::grouped_linear_prepack.codes(codes, scales, offsets, inputs, group_size, row_bits, values) -> GroupedCodesContext
//   ipex::grouped_linear_prepack.again(packed, row_bits) -> GroupedCodesContext    of the same memory
//   ipex::grouped_linear_run.codes(input, ends, context) -> Tensor
//   ipex::grouped_weight_only_linear(input, ends, codes, scales, offsets, inputs, group_size, row_bits, values) -> Tensor
//
// where `ends` are what `offsets` are above. The last is what a model says whose codes are not packed. All read the codes of
// those groups alone that have rows.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/_grouped_mm.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "ops/product/linear.h"
#include "ops/product/weight_only_linear.h"
#include "packed/call_conditions.h"
#include "packed/chain.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

// Whether each group ends where the one before it does or later, and the last within the rows.
bool do_rise(const int32_t* ends, int64_t groups, int64_t rows) {
  return ends[0] >= 0 && std::is_sorted(ends, ends + groups) && ends[groups - 1] <= rows;
}

// `visit(i, first row, rows)` for each group that has rows.
template <typename Visit>
void for_groups(const int32_t* ends, int64_t groups, Visit&& visit) {
  for (int64_t i = 0, first = 0; i < groups; first = ends[i++]) {
    if (ends[i] > first) visit(i, first, ends[i] - first);
  }
}

// Room for the result, whose rows behind the last group are zeros.
at::Tensor result_of_groups(const at::Tensor& input, const int32_t* ends, int64_t groups, int64_t columns) {
  at::Tensor result = empty_result({input.size(0), columns}, input.options());
  const int64_t last = ends[groups - 1];
  if (last < input.size(0)) result.narrow(0, last, input.size(0) - last).zero_();
  return result;
}

// `multiply(i, rows, result)` for each group that has rows.
template <typename Multiply>
at::Tensor in_groups(const at::Tensor& input, const int32_t* ends, int64_t groups, int64_t columns,
                     Multiply&& multiply) {
  at::Tensor result = result_of_groups(input, ends, groups, columns);
  for_groups(ends, groups, [&](int64_t i, int64_t first, int64_t rows) {
    multiply(i, input.narrow(0, first, rows), result.narrow(0, first, rows));
  });
  return result;
}

template <typename LayerContext>
class Grouped : public Chain<LayerContext> {
 public:
  using Layer = typename Chain<LayerContext>::Layer;

  explicit Grouped(std::vector<Layer> layers) : Chain<LayerContext>("ipex::grouped_linear_run", std::move(layers)) {
    for (const Layer& layer : this->layers()) {
      TORCH_CHECK(layer->input_width() == depth() && layer->output_width() == columns(),
                  "ipex::grouped_linear_prepack: expected layers of one shape, got [", columns(), ", ", depth(),
                  "] and [", layer->output_width(), ", ", layer->input_width(),
                  "]. Give each group a layer of that shape.");
    }
  }

 protected:
  int64_t depth() const { return this->layers().front()->input_width(); }
  int64_t columns() const { return this->layers().front()->output_width(); }
};

class GroupedLinearContext final : public Grouped<LinearContext> {
 public:
  using Grouped::Grouped;

  at::Tensor run(const at::Tensor& input, const at::Tensor& offsets) const {
    if (const char* reason = reason_for_aten(input, offsets)) {
      const LeftToAten left(reason, "ipex::grouped_linear_run");
      return at::_grouped_mm(input, plain_weights(), offsets);
    }
    return in_groups(input, offsets.const_data_ptr<int32_t>(), std::ssize(layers()), columns(),
                     [&](int64_t i, const at::Tensor& rows, const at::Tensor& result) {
                       multiply(*layers()[static_cast<size_t>(i)], rows, result);
                     });
  }

 private:
  const char* reason_for_aten(const at::Tensor& input, const at::Tensor& offsets) const {
    if (at::autocast::is_autocast_enabled(at::kCPU)) return "autocast is on";
    if (!is_plain_cpu_float(input)) return "its input is not a float32 CPU tensor";
    if (wants_gradient(input)) return "its input requires a gradient";
    if (input.dim() != 2 || input.size(1) != depth()) return "its input has not two dimensions, or another width";
    if (!is_plain_cpu(offsets) || offsets.scalar_type() != at::kInt || !offsets.is_contiguous() || offsets.dim() != 1 ||
        offsets.size(0) != std::ssize(layers())) {
      return "its offsets are not an int32 for each group";
    }
    if (!do_rise(offsets.const_data_ptr<int32_t>(), offsets.size(0), input.size(0))) {
      return "its offsets do not rise, or lead out of its input";
    }
    return nullptr;
  }

  static void multiply(const LinearContext& layer, const at::Tensor& rows, const at::Tensor& result) {
    const auto strided = layer.multiplies_alone(/*rank=*/2) ? rows_of(rows) : std::nullopt;
    if (strided) return layer.multiply(*strided, result.mutable_data_ptr<float>());
    RECORD_FUNCTION("ipex::linear_run", {});
    result.copy_(layer.run(rows, {}, /*eager_layout=*/true));
  }

  // As aten has them: [groups, depth, columns].
  at::Tensor plain_weights() const {
    std::vector<at::Tensor> weights;
    for (const Layer& layer : layers()) weights.push_back(layer->plain());
    return at::stack(weights).transpose(1, 2);
  }
};

// Returns where groups end. Throws where these are no ends of so many groups of the input's rows.
const int32_t* checked_ends(const at::Tensor& input, const at::Tensor& ends, int64_t groups) {
  TORCH_CHECK(input.dim() == 2, "ipex::grouped_linear_run: expected rows [rows, inputs], got ", input.sizes(),
              ". Flatten all dimensions but the last.");
  const bool is_one_for_each = is_plain_cpu(ends) && ends.scalar_type() == at::kInt && ends.is_contiguous() &&
                               ends.dim() == 1 && ends.size(0) == groups;
  TORCH_CHECK(is_one_for_each && do_rise(ends.const_data_ptr<int32_t>(), groups, input.size(0)),
              "ipex::grouped_linear_run: expected ends that rise, an int32 for each of ", groups, " groups of ",
              input.size(0), " rows, got ", ends.scalar_type(), " ", ends.sizes(), ". Give the running count of rows.");
  return ends.const_data_ptr<int32_t>();
}

class GroupedCodesContext final : public Grouped<WeightOnlyLinearContext> {
 public:
  using Grouped::Grouped;

  at::Tensor run(const at::Tensor& input, const at::Tensor& ends) const {
    const int64_t groups = std::ssize(layers());
    const int32_t* const own_ends = checked_ends(input, ends, groups);
    std::vector<WeightOnlyLinearContext::Group> own;
    for_groups(own_ends, groups, [&](int64_t i, int64_t first, int64_t rows) {
      own.push_back({layers()[static_cast<size_t>(i)].get(), first, rows});
    });
    if (input.scalar_type() == at::kFloat) {
      at::Tensor result = result_of_groups(input, own_ends, groups, columns());
      if (WeightOnlyLinearContext::run_in_groups(own, input, result)) return result;
    }
    return in_groups(input, own_ends, groups, columns(),
                     [&](int64_t i, const at::Tensor& rows, const at::Tensor& result) {
                       const Layer& layer = layers()[static_cast<size_t>(i)];
                       RECORD_FUNCTION(layer->name(), {});
                       result.copy_(layer->run(rows, {}, /*eager_layout=*/true));
                     });
  }
};

// Matrices of codes, as a model has them.
struct GroupsOfCodes {
  at::Tensor codes, scales;
  std::optional<at::Tensor> offsets;
  int64_t inputs, group_size, row_bits;
  std::optional<at::Tensor> values;

  // Throws where they are no matrices of so many groups.
  void check() const {
    const auto is_one_for_each = [&](const at::Tensor& tensor) {
      return tensor.dim() == 3 && tensor.size(0) == codes.size(0);
    };
    TORCH_CHECK(
        codes.dim() == 3 && codes.size(0) > 0 && is_one_for_each(scales) && (!offsets || is_one_for_each(*offsets)),
        "ipex::grouped_linear_prepack: expected codes, scales and offsets of three dimensions, the first that "
        "of the groups, got ",
        codes.sizes(), " and ", scales.sizes(), ". Stack those of the groups.");
  }

  std::optional<at::Tensor> offsets_of(int64_t group) const {
    return offsets ? std::optional(offsets->select(0, group)) : std::nullopt;
  }

  c10::intrusive_ptr<GroupedCodesContext> packed() const {
    check();
    std::vector<GroupedCodesContext::Layer> layers;
    for (int64_t i = 0; i < codes.size(0); ++i) {
      layers.push_back(weight_only_linear_prepack(codes.select(0, i), scales.select(0, i), offsets_of(i), std::nullopt,
                                                  std::nullopt, {}, inputs, group_size, row_bits, values));
    }
    return c10::make_intrusive<GroupedCodesContext>(std::move(layers));
  }

  // In aten, with the numbers that codes stand for.
  at::Tensor times(const at::Tensor& input, const at::Tensor& ends) const {
    check();
    const int64_t groups = codes.size(0);
    return in_groups(
        input, checked_ends(input, ends, groups), groups, codes.size(1),
        [&](int64_t i, const at::Tensor& rows, const at::Tensor& result) {
          result.copy_(weight_only_linear(rows, codes.select(0, i), scales.select(0, i), offsets_of(i), std::nullopt,
                                          std::nullopt, inputs, group_size, row_bits, values));
        });
  }
};

using GroupsContext = c10::intrusive_ptr<GroupedLinearContext>;

GroupsContext grouped_linear_prepack(std::vector<GroupedLinearContext::Layer> layers) {
  return c10::make_intrusive<GroupedLinearContext>(std::move(layers));
}

at::Tensor grouped_linear_run(const at::Tensor& input, const at::Tensor& offsets, const GroupsContext& context) {
  return context->run(input, offsets);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_chain<GroupedLinearContext>(m, "GroupedLinearContext");
  define(m,
         "grouped_linear_prepack(__torch__.torch.classes.ipex.LinearContext[] layers) -> "
         "__torch__.torch.classes.ipex.GroupedLinearContext",
         grouped_linear_prepack);
  define(
      m,
      "grouped_linear_run(Tensor input, Tensor offsets, __torch__.torch.classes.ipex.GroupedLinearContext context) -> "
      "Tensor",
      grouped_linear_run);
  define_chain<GroupedCodesContext>(m, "GroupedCodesContext");
  define(m,
         "grouped_linear_prepack.codes(Tensor codes, Tensor scales, Tensor? offsets, int inputs, int group_size, "
         "int row_bits=24, Tensor? values=None) -> __torch__.torch.classes.ipex.GroupedCodesContext",
         [](const at::Tensor& codes, const at::Tensor& scales, const std::optional<at::Tensor>& offsets, int64_t inputs,
            int64_t group_size, int64_t row_bits, const std::optional<at::Tensor>& values) {
           return GroupsOfCodes{codes, scales, offsets, inputs, group_size, row_bits, values}.packed();
         });
  define(m,
         "grouped_linear_prepack.again(__torch__.torch.classes.ipex.GroupedCodesContext packed, int row_bits) -> "
         "__torch__.torch.classes.ipex.GroupedCodesContext",
         [](const c10::intrusive_ptr<GroupedCodesContext>& packed, int64_t row_bits) {
           std::vector<GroupedCodesContext::Layer> layers;
           for (const auto& layer : packed->layers()) {
             layers.push_back(WeightOnlyLinearContext::again(layer, {}, row_bits));
           }
           return c10::make_intrusive<GroupedCodesContext>(std::move(layers));
         });
  define(m,
         "grouped_linear_run.codes(Tensor input, Tensor ends, __torch__.torch.classes.ipex.GroupedCodesContext "
         "context) -> Tensor",
         [](const at::Tensor& input, const at::Tensor& ends, const c10::intrusive_ptr<GroupedCodesContext>& context) {
           return context->run(input, ends);
         });
  define(m,
         "grouped_weight_only_linear(Tensor input, Tensor ends, Tensor codes, Tensor scales, Tensor? offsets, "
         "int inputs, int group_size, int row_bits=24, Tensor? values=None) -> Tensor",
         [](const at::Tensor& input, const at::Tensor& ends, const at::Tensor& codes, const at::Tensor& scales,
            const std::optional<at::Tensor>& offsets, int64_t inputs, int64_t group_size, int64_t row_bits,
            const std::optional<at::Tensor>& values) {
           return GroupsOfCodes{codes, scales, offsets, inputs, group_size, row_bits, values}.times(input, ends);
         });
}

}  // namespace
}  // namespace ipex::runtime
