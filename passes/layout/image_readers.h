// What it costs the readers of a channels-last image that it is not contiguous: read from the op table.
//
//   follows     elementwise ops, views           what their own readers say
//   any         sums, products, attention        nothing
//   moves       permutations                     nothing: the channels are where they go
//   needs one   all others                       the image is made contiguous for them, once
#pragma once

#include "layout/stretches.h"

namespace ipex::passes {

// Whether this reader of a member takes it in any layout: it is in a stretch itself, only adds it, or does not look.
bool takes_any_layout(const Stretches& stretches, const Use& use);

}  // namespace ipex::passes
