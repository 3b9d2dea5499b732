// What the model itself makes contiguous, and nobody needs so.
#pragma once

#include "layout/stretches.h"

namespace ipex::passes {

// Lets convolutions and pools read what was made contiguous for them: they lay it out as they need it, and tokens in rows
// are channels-last as they are. Whether there was any.
bool skip_copies_for_images(Context& context);

// Members that are made contiguous though nobody sees their strides are read as they are. Whether there were any.
bool skip_copies(Context& context, const Stretches& stretches);

}  // namespace ipex::passes
