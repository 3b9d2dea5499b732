// What a batch_norm in eval mode does to each channel.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

// y * scale + shift, in float64, one element per channel.
struct ChannelAffine {
  at::Tensor scale, shift;
};

// Reads it off the node's constants; or why it can't be said.
std::optional<std::string> read_batch_norm(const Node* node, int64_t channels, ChannelAffine& affine);

}  // namespace ipex::passes
