#include "ops/few_rows.h"

#include <ATen/Parallel.h>

#include "kernels/kernels.h"

namespace ipex::runtime {

bool can_multiply_few_rows(const Panels& panels) {
  const int64_t width = kernels().few_rows.width;
  return panels.columns % width == 0 && panels.columns / width <= most_vectors_of_a_panel;
}

void multiply_few_rows(const float* rows, int64_t row_count, int64_t depth, const Panels& panels,
                       const ElementwiseSteps& steps, float* result) {
  const FewRowsProduct work{.rows = rows,
                            .row_count = row_count,
                            .depth = depth,
                            .panels = panels.data,
                            .panel_columns = panels.columns,
                            .panel_size = panels.size,
                            .steps = steps,
                            .result = result};
  const int64_t group = panels.columns * panels_of_a_group(row_count);
  const int64_t groups = (steps.columns + group - 1) / group;
  constexpr int64_t elements_worth_a_thread = 1 << 15;
  const int64_t grain = elements_worth_a_thread / (depth * group) + 1;
  const auto multiply = kernels().few_rows.multiply;
  if (groups <= grain) return multiply(work, 0, groups);
  at::parallel_for(0, groups, grain, [&](int64_t first, int64_t last) { multiply(work, first, last); });
}

}  // namespace ipex::runtime
