#include "ops/product/bf16_weight.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "kernels/kernels.h"

namespace ipex::runtime {
namespace {

int64_t columns_of_a_tile() { return kernels().bf16_product.columns_of_a_tile; }

}  // namespace

Bf16Weight::Bf16Weight(const Panels& weight, int64_t outputs, int64_t inputs)
    : outputs_(outputs),
      inputs_(inputs),
      tiles_((outputs_ + columns_of_a_tile() - 1) / columns_of_a_tile()),
      // Zeros, as the last tile need not be full.
      data_(std::make_unique<uint32_t[]>(tiles_ * inputs_ * columns_of_a_tile() / 2)) {
  const int64_t width = columns_of_a_tile() / 2;
  constexpr int64_t rows_in_cache = 256;
  const auto round = [&](int64_t output, int64_t first, int64_t last) {
    const float* from = weight.data + output / weight.columns * weight.size + output % weight.columns;
    const int64_t column = output % (2 * width);
    const int shift = column < width ? 0 : 16;
    uint32_t* words = data_.get() + output / (2 * width) * inputs_ * width + column % width;
    for (int64_t k = first; k < last; ++k) {
      words[k * width] |= uint32_t{at::BFloat16(from[k * weight.columns]).x} << shift;
    }
  };
  at::parallel_for(0, tiles_, 1, [&](int64_t first_tile, int64_t last_tile) {
    for (int64_t tile = first_tile; tile < last_tile; ++tile) {
      const int64_t first = tile * 2 * width, last = std::min(outputs_, first + 2 * width);
      for (int64_t k = 0; k < inputs_; k += rows_in_cache) {
        for (int64_t output = first; output < last; ++output) round(output, k, std::min(inputs_, k + rows_in_cache));
      }
    }
  });
}

bool Bf16Weight::is_worth_it(int64_t rows, int64_t elements, size_t post_ops) {
  // What is gained with fewer than these is lost in a call, or in two: to aten for each post-op. With more rows than two
  // the arithmetic, which is the same in float32, hides the time of all but memory itself.
  constexpr int64_t elements_of_a_call = 1 << 17;
  const int64_t calls = (rows > 2 ? 8 : 1) + 2 * static_cast<int64_t>(post_ops);
  return rows <= most_rows_of_bf16_product && elements >= elements_of_a_call * calls;
}

void Bf16Weight::multiply(const at::Tensor& input, const at::Tensor& bias, const at::Tensor& result) const {
  const Bf16Product work{input.const_data_ptr<float>(),
                         input.numel() / inputs_,
                         data_.get(),
                         inputs_,
                         bias.defined() ? bias.const_data_ptr<float>() : nullptr,
                         result.data_ptr<float>(),
                         outputs_};
  constexpr int64_t elements_worth_a_thread = 1 << 15;
  const int64_t grain = elements_worth_a_thread / (inputs_ * columns_of_a_tile()) + 1;
  at::parallel_for(0, tiles_, grain,
                   [&](int64_t first, int64_t last) { kernels().bf16_product.multiply(work, first, last); });
}

}  // namespace ipex::runtime
