// What is left of an earlier failure in oneDNN, for want of memory.
#pragma once

namespace ipex::runtime {

// So that this thread may make kernels again.
void forget_error_of_xbyak();

}  // namespace ipex::runtime
