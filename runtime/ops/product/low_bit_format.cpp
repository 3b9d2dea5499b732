#include "ops/product/low_bit_format.h"

#include <algorithm>
#include <iterator>

namespace ipex::runtime {
namespace {

const LowBitFormat formats[] = {{"int8", at::kChar, CodeFormat::int8, 8, 0},
                                {"int4", at::kByte, CodeFormat::int4, 4, 0},
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

const LowBitFormat* low_bit_format(at::ScalarType dtype) {
  return find([&](const LowBitFormat& format) { return format.dtype == dtype; });
}

std::string low_bit_format_names() {
  std::string names;
  for (const LowBitFormat& format : formats) names += (names.empty() ? "" : ", ") + std::string(format.name);
  return names;
}

}  // namespace ipex::runtime
