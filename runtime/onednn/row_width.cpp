#include "onednn/row_width.h"

#include "isa/isa.h"

namespace ipex::runtime {

bool multiplies_in_tiles(at::ScalarType dtype) {
  if (dtype == at::kBFloat16) return isa::is_in_use(isa::Level::AMX);
  return dtype == at::kHalf && isa::is_in_use(isa::Level::AMX_FP16);
}

}  // namespace ipex::runtime
