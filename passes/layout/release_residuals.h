// Residuals that decide the layout of a convolution's result, and would keep it out of its stretch.
#pragma once

#include "layout/stretches.h"

namespace ipex::passes {

// Takes them out of convolutions that read a member and are none. Whether there were any.
bool release_residuals(Context& context, const Stretches& stretches);

}  // namespace ipex::passes
