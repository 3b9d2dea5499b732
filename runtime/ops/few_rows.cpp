#include "ops/few_rows.h"

#include <ATen/Parallel.h>

#include "kernels/kernels.h"

namespace ipex::runtime {

bool can_multiply_few_rows(const Panels& panels) {
  const int64_t width = kernels().few_rows.width;
  return panels.columns % width == 0 && panels.columns / width <= most_vectors_of_a_panel;
}

void multiply_few_rows(const at::Tensor& input, const Panels& panels, const ElementwiseSteps& steps,
                       const at::Tensor& result) {
  const int64_t depth = input.size(-1), rows = input.numel() / depth, columns = steps.columns;
  const FewRowsProduct work{.rows = input.const_data_ptr<float>(),
                            .row_count = rows,
                            .depth = depth,
                            .panels = panels.data,
                            .panel_columns = panels.columns,
                            .panel_size = panels.size,
                            .steps = steps,
                            .result = result.data_ptr<float>()};
  const int64_t group = panels.columns * panels_of_a_group(rows);
  constexpr int64_t elements_worth_a_thread = 1 << 15;
  const int64_t grain = elements_worth_a_thread / (depth * group) + 1;
  const auto multiply = kernels().few_rows.multiply;
  at::parallel_for(0, (columns + group - 1) / group, grain,
                   [&](int64_t first, int64_t last) { multiply(work, first, last); });
}

}  // namespace ipex::runtime
