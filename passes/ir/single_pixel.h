// Which values hold one pixel of each image: gates of squeeze-and-excite and their like come from such.
#pragma once

#include "anchor/anchor.h"

namespace ipex::passes {

// Whether the anchor's result is known to be a single pixel, pooled from a whole image or a whole sequence, and `operand`
// is not: the result of both is then far larger than the anchor's, and no packed op computes it.
bool is_spread_over(const Anchor& anchor, const Value* operand);

// Whether the value is known to be a single pixel of an image of any rank.
bool is_single_pixel(const Value* value);

}  // namespace ipex::passes
