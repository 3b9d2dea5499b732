#include "ops/product/low_bit_format.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iterator>

namespace ipex::runtime {
namespace {

// The means of sixteen equal shares of a normal distribution, with a zero, as QLoRA (arXiv:2305.14314) defines them.
constexpr float normal_floats[] = {-1.0f,
                                   -0.6961928009986877f,
                                   -0.5250730514526367f,
                                   -0.39491748809814453f,
                                   -0.28444138169288635f,
                                   -0.18477343022823334f,
                                   -0.09105003625154495f,
                                   0.0f,
                                   0.07958029955625534f,
                                   0.16093020141124725f,
                                   0.24611230194568634f,
                                   0.33791524171829224f,
                                   0.44070982933044434f,
                                   0.5626170039176941f,
                                   0.7229568362236023f,
                                   1.0f};

const LowBitFormat formats[] = {{"int8", at::kChar, CodeFormat::int8, 8, 0},
                                {"int4", at::kByte, CodeFormat::int4, 4, 0},
                                {"nf4", at::kByte, CodeFormat::table, 4, 1, normal_floats},
                                {"bfloat16", at::kBFloat16, CodeFormat::bf16, 16, 0x1.fep127},
                                {"float8_e4m3fn", at::kFloat8_e4m3fn, CodeFormat::e4m3, 8, 448},
                                {"float8_e5m2", at::kFloat8_e5m2, CodeFormat::e5m2, 8, 57344}};

template <typename Is>
const LowBitFormat* find(Is is) {
  const auto* found = std::find_if(std::begin(formats), std::end(formats), is);
  return found == std::end(formats) ? nullptr : found;
}

}  // namespace

const LowBitFormat* low_bit_format(const std::string& name) {
  return find([&](const LowBitFormat& format) { return format.name == name; });
}

const LowBitFormat* low_bit_format(at::ScalarType dtype, bool has_values) {
  return find(
      [&](const LowBitFormat& format) { return format.dtype == dtype && (format.values != nullptr) == has_values; });
}

at::Tensor LowBitFormat::table() const {
  return values ? at::tensor(at::ArrayRef<float>(values, numbers_of_a_table)) : at::Tensor();
}

std::string low_bit_format_names() {
  std::string names;
  for (const LowBitFormat& format : formats) names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

}  // namespace ipex::runtime
