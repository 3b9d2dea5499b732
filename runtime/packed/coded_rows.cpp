#include "packed/coded_rows.h"

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

void write_coded_rows(const HeadRows& rows, const HeadRows& codes, const HeadRows& scales) {
  const CodedRowKernels& kernel = *coded_rows_of(codes.dtype);
  const HalvesKernels* halves = halves_of(rows.dtype);
  const int64_t width = rows.size(3), count = rows.size(0) * rows.size(1) * rows.size(2);
  constexpr int64_t numbers_worth_waking = 1 << 16;
  parallel_for(count, grain_of(count, count * width, numbers_worth_waking), [&](int64_t first, int64_t last) {
    const at::Tensor memory = halves ? scratch(sizeof(float) * width) : at::Tensor();
    auto* const room = halves ? static_cast<float*>(memory.data_ptr()) : nullptr;
    for (int64_t i = first; i < last; ++i) {
      if (halves) halves->widen(rows.row(i), width, room);
      const float* floats = halves ? room : reinterpret_cast<const float*>(rows.row(i));
      *reinterpret_cast<float*>(scales.row(i)) = kernel.narrow(floats, width, reinterpret_cast<uint8_t*>(codes.row(i)));
    }
  });
}

}  // namespace ipex::runtime
