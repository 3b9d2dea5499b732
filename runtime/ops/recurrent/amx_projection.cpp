#include "ops/recurrent/amx_projection.h"

#include <ATen/ATen.h>

#include "isa/isa.h"
#include "memory/result_memory.h"
#include "onednn/making.h"
#include "threads/thread_count.h"

namespace ipex::runtime {

using dnnl::memory;

bool AmxProjection::is_worth_it(int64_t rows, int64_t elements) {
  constexpr int64_t many_rows = 64, multiplications_of_a_call = 1 << 22;
  return rows >= many_rows && rows * elements >= multiplications_of_a_call && isa::is_in_use(isa::Level::AMX);
}

AmxProjection::AmxProjection(at::Tensor weight, at::Tensor bias, const StoredForms& stored)
    : columns_(weight.size(0)), depth_(weight.size(1)), bias_(std::move(bias)) {
  constexpr int64_t ordinary_rows = 1024;
  try {
    const Making making;
    const memory::desc plain({depth_, columns_}, memory::data_type::f32, memory::format_tag::ba);
    auto desc = describe(ordinary_rows, any_weight_desc());
    if (desc && skip_reference_implementations(desc))
      weight_.emplace(weight, plain, desc.weights_desc(), stored, "for AMX");
  } catch (const dnnl::error&) {  // it has no reorder
  }
}

at::Tensor AmxProjection::run(const at::Tensor& input) const {
  if (!weight_) return {};
  try {
    const auto make = [&]() -> std::optional<Prepared> {
      const Making making;
      // With the weight as it is packed or, where no kernel takes that, as one wants it.
      for (const memory::desc& weight : {weight_->desc(), any_weight_desc()}) {
        auto desc = describe(input.size(0), weight);
        if (desc && skip_reference_implementations(desc)) return Prepared(desc, /*has_bias=*/true);
      }
      return std::nullopt;
    };
    const auto primitive = primitives_.get({input.size(0), thread_count()}, make);
    if (!*primitive) return {};
    at::Tensor result = empty_result({input.size(0), columns_}, input.options());
    return (*primitive)->run(input, *weight_, bias_, result, {}) ? at::Tensor() : result;
  } catch (const dnnl::error&) {
    return {};
  }
}

std::vector<std::string> AmxProjection::math_modes() const {
  std::vector<std::string> modes;
  for (const auto& primitive : primitives_.values()) {
    if (*primitive) modes.emplace_back(to_string((*primitive)->math_mode()));
  }
  return modes;
}

// oneDNN multiplies by a [depth, columns] matrix.
memory::desc AmxProjection::any_weight_desc() const {
  return {{depth_, columns_}, memory::data_type::f32, memory::format_tag::any};
}

dnnl::primitive_desc AmxProjection::describe(int64_t rows, const memory::desc& weight) const {
  const auto row_major = [](int64_t height, int64_t width) {
    return memory::desc({height, width}, memory::data_type::f32, memory::format_tag::ab);
  };
  const memory::desc result = row_major(rows, columns_);
  return dnnl::matmul::primitive_desc(engine(), row_major(rows, depth_), weight, row_major(1, columns_), result,
                                      attributes(FP32MathMode::BF32),
                                      /*allow_empty=*/true);
}

}  // namespace ipex::runtime
