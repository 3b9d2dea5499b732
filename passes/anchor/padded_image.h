// Images that are padded with zeros for a convolution alone.
#pragma once

#include <optional>
#include <string>

#include "anchor/anchor.h"

namespace ipex::passes {

// The convolution that reads what the node pads, or reads it channels-last.
std::optional<Anchor> convolution_after(const Node* pad);

// Why the convolution can't read what the node pads, and pad it itself. Empty where it can.
std::optional<std::string> reason_against_padding(const Node* pad, const Anchor& convolution);

}  // namespace ipex::passes
