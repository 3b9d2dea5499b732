// Primitives that oneDNN may have no memory for.
//
// Then it throws std::bad_alloc, or reports an error, and keeps more than it should: in its cache, a promise that nobody keeps, whose
// key is gone, so that the same primitive is refused ("Broken promise") or the process ends; and in the thread, that there were
// no pages for code, so that it makes no more kernels.
#pragma once

#include <utility>

#include "onednn/cache_of_onednn.h"
#include "onednn/dnnl.h"

namespace ipex::runtime {

// So that this thread may make kernels again.
void forget_lack_of_pages();

template <typename Primitive, typename... Arguments>
Primitive make_primitive(Arguments&&... arguments) {
  const CacheOfOneDnn::Use use;
  forget_lack_of_pages();
  try {
    return Primitive(std::forward<Arguments>(arguments)...);
  } catch (const dnnl::error&) {  // it has cleaned up
    throw;
  } catch (...) {
    CacheOfOneDnn::instance().leave();
    throw;
  }
}

}  // namespace ipex::runtime
