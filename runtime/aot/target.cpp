#include "aot/target.h"

#include <c10/util/StringUtil.h>
#include <ipex/isa.h>
#include <torch/version.h>

#include "onednn/dnnl.h"

namespace ipex::runtime {

Target this_process() {
  const dnnl_version_t* const version = dnnl_version();
  return {IPEX_VERSION, c10::str(version->major, ".", version->minor, ".", version->patch), TORCH_VERSION,
          isa::name(isa::current()), isa::onednn()};
}

std::string reason_against(const Target& target) {
  const Target here = this_process();
  if (target.ipex == here.ipex && target.onednn == here.onednn) return {};
  return c10::str("the file was packed by ipex ", target.ipex, " with oneDNN ", target.onednn, " and this is ipex ",
                  here.ipex, " with oneDNN ", here.onednn);
}

std::string difference_of_levels(const Target& target) {
  const Target here = this_process();
  if (target.level == here.level && target.onednn_isa == here.onednn_isa) return {};
  const auto text = [](const Target& of) { return c10::str(of.level, " with oneDNN ", of.onednn_isa); };
  return c10::str("the file is for ", text(target), " and this process uses ", text(here));
}

}  // namespace ipex::runtime
