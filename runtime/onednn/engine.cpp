#include "onednn/engine.h"

#include "isa/isa.h"

namespace ipex::runtime {

const dnnl::engine& engine() {
  static const dnnl::engine engine = [] {
    isa::prepare_onednn();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return engine;
}

dnnl::stream& stream() {
  thread_local dnnl::stream stream(engine());
  return stream;
}

}  // namespace ipex::runtime
