#include "ops/product/bf16_weight.h"

#include <c10/util/StringUtil.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "memory/weight_memory.h"
#include "ops/product/pairs.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

// As few panels as the kernels allow, and as narrow as that leaves them: then little is padding.
int64_t panel_columns_for(int64_t outputs) {
  const PairsProductKernels* of_many_rows = kernels().optional.pairs_product;
  const int64_t width = kernels().few_rows.width, vectors = at::divup(outputs, width);
  const int64_t most = of_many_rows ? of_many_rows->most_columns / width : most_vectors_of_a_panel;
  return width * at::divup(vectors, at::divup(vectors, most));
}

int64_t panel_words_for(int64_t inputs) {
  const PairsProductKernels* of_many_rows = kernels().optional.pairs_product;
  const int64_t whole = of_many_rows ? of_many_rows->whole_words : 1;
  return at::divup(at::divup(inputs, 2), whole) * whole;
}

}  // namespace

Bf16Weight::Bf16Weight(c10::function_ref<Panels()> weight, int64_t outputs, int64_t inputs, const StoredForms& stored)
    : inputs_(inputs),
      panel_columns_(panel_columns_for(outputs)),
      panel_size_(panel_words_for(inputs) * panel_columns_),
      panels_(at::divup(outputs, panel_columns_)),
      words_(stored.get(c10::str("bfloat16 pairs, ", panel_columns_, " columns"), {at::kInt, {panels_ * panel_size_}},
                        [&] { return rounded(weight(), outputs); })) {}

at::Tensor Bf16Weight::rounded(const Panels& weight, int64_t outputs) const {
  at::Tensor result = zero_weight({panels_ * panel_size_}, at::kInt);  // the last panel need not be full
  auto* const words = static_cast<uint32_t*>(result.data_ptr());
  constexpr int64_t rows_in_cache = 256;
  const auto round = [&](int64_t output, int64_t first, int64_t last) {
    const float* from = weight.data + output / weight.columns * weight.size + output % weight.columns;
    uint32_t* to = words + output / panel_columns_ * panel_size_ + output % panel_columns_;
    for (int64_t k = first; k < last; k += 2) {
      const float second = k + 1 < inputs_ ? from[(k + 1) * weight.columns] : 0.f;
      to[k / 2 * panel_columns_] = pair_of(from[k * weight.columns], second);
    }
  };
  parallel_for(panels_, 1, [&](int64_t first_panel, int64_t last_panel) {
    for (int64_t panel = first_panel; panel < last_panel; ++panel) {
      const int64_t first = panel * panel_columns_, last = std::min(outputs, first + panel_columns_);
      for (int64_t k = 0; k < inputs_; k += rows_in_cache) {
        for (int64_t output = first; output < last; ++output) round(output, k, std::min(inputs_, k + rows_in_cache));
      }
    }
  });
  return result;
}

bool Bf16Weight::is_worth_it(int64_t rows, int64_t elements, size_t post_ops) {
  if (rows > most_few_rows) {
    // Arithmetic counts, and is done at twice the speed, or by tiles.
    constexpr int64_t least_elements = 1 << 12, least_products = 1 << 17;
    return kernels().optional.pairs_product && post_ops == 0 && elements >= least_elements &&
           rows * elements >= least_products;
  }
  // The weight is read at twice the speed. A smaller one stays in the second cache, and a call to aten costs more.
  constexpr int64_t elements_of_a_call = 1 << 17;
  const int64_t calls = 1 + 2 * static_cast<int64_t>(post_ops);
  if (rows <= 2 || kernels().few_rows.width == 16) return elements >= elements_of_a_call * calls;
  // With 16 registers, widening takes as much time as is gained, unless the weight lies in memory itself.
  return rows <= 4 && elements >= elements_of_a_call * (7 + calls);
}

void Bf16Weight::multiply(const InputRows& rows, const ElementwiseSteps& steps, float* result) const {
  runtime::multiply({.rows = rows.first,
                     .row_stride = rows.stride,
                     .row_count = rows.count,
                     .matrix = {NumberFormat::pairs, static_cast<const uint32_t*>(words_.const_data_ptr()), inputs_},
                     .panel_columns = panel_columns_,
                     .panel_size = panel_size_,
                     .steps = steps,
                     .result = result,
                     .result_stride = steps.columns});
}

}  // namespace ipex::runtime
