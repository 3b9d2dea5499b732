#include "ops/quantized/quantized_weight.h"

#include <ATen/ATen.h>

#include "memory/weight_memory.h"
#include "onednn/engine.h"
#include "onednn/making.h"
#include "onednn/no_memory.h"

namespace ipex::runtime {

at::Tensor QuantizedWeight::in_layout(const dnnl::memory::desc& wanted,
                                      c10::function_ref<dnnl::memory::desc()> plain_desc) const {
  const auto make = [&] {
    const at::Tensor bytes = stored_in_layout(stored_, "int8", wanted, [&] {
      const Making making;
      const at::Tensor packed = empty_weight({static_cast<int64_t>(wanted.get_size())}, at::kByte);
      dnnl::memory from(plain_desc(), engine(), plain_.data_ptr()), to(wanted, engine(), packed.data_ptr());
      make_primitive<dnnl::reorder>(from, to).execute(stream(), from, to);
      stream().wait();
      return packed;
    });
    return Packed{wanted, bytes};
  };
  return packed_.get(wanted, make)->bytes;
}

std::vector<dnnl::memory::desc> QuantizedWeight::layouts() const {
  std::vector<dnnl::memory::desc> descs;
  for (const auto& packed : packed_.values()) descs.push_back(packed->desc);
  return descs;
}

}  // namespace ipex::runtime
