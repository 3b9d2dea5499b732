#include "packed/coded_rows.h"

#include <ATen/ATen.h>

#include "kernels/kernels.h"
#include "memory/scratch.h"
#include "packed/float_rows.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {

const CodedRowKernels* coded_rows_of(at::ScalarType dtype) {
  const CodedRowFormats& formats = kernels().coded_rows;
  switch (dtype) {
    case at::kChar:
      return &formats.int8;
    case at::kFloat8_e4m3fn:
      return &formats.e4m3;
    case at::kFloat8_e5m2:
      return &formats.e5m2;
    default:
      return nullptr;
  }
}

void write_coded_rows(const at::Tensor& rows, const at::Tensor& codes, const at::Tensor& scales) {
  const CodedRowKernels& kernel = *coded_rows_of(codes.scalar_type());
  const HalvesKernels* halves = halves_of(rows.scalar_type());
  const at::Tensor from = rows.stride(3) == 1 ? rows : rows.contiguous();
  const int64_t heads = rows.size(1), length = rows.size(2), width = rows.size(3);
  const int64_t count = rows.size(0) * heads * length;
  const auto* source = static_cast<const char*>(from.const_data_ptr());
  auto* to = static_cast<uint8_t*>(codes.mutable_data_ptr());
  auto* to_scales = scales.mutable_data_ptr<float>();
  constexpr int64_t numbers_worth_waking = 1 << 16;
  parallel_for(count, grain_of(count, count * width, numbers_worth_waking), [&](int64_t first, int64_t last) {
    const at::Tensor memory = halves ? scratch(sizeof(float) * width) : at::Tensor();
    auto* const room = halves ? static_cast<float*>(memory.data_ptr()) : nullptr;
    for (int64_t i = first; i < last; ++i) {
      const int64_t batch = i / length / heads, head = i / length % heads, word = i % length;
      const auto place = [&](const at::Tensor& x) {
        return batch * x.stride(0) + head * x.stride(1) + word * x.stride(2);
      };
      const char* row = source + place(from) * static_cast<int64_t>(from.itemsize());
      if (halves) halves->widen(row, width, room);
      const float* floats = halves ? room : reinterpret_cast<const float*>(row);
      to_scales[place(scales)] = kernel.narrow(floats, width, to + place(codes));
    }
  });
}

at::Tensor numbers_of(const at::Tensor& codes, const at::Tensor& scales) {
  return codes.to(at::kFloat).mul_(scales.unsqueeze(-1));
}

}  // namespace ipex::runtime
