// How many windows an image has along a dimension, for every op that moves some over one.
#pragma once

#include <cstdint>

namespace ipex::runtime {

// Of `taps` pixels with `dilation` from one to the next, `stride` from window to window, in `pixels` with their padding. Zero
// where none fits. Numbers that the door lets in do not overflow. With `ceil_mode` a last one may reach beyond the image.
inline int64_t window_count(int64_t pixels, int64_t taps, int64_t dilation, int64_t stride, bool ceil_mode = false) {
  const int64_t room = pixels - dilation * (taps - 1) - 1;
  return room < 0 ? 0 : (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
}

}  // namespace ipex::runtime
