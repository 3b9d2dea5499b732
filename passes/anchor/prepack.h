// Why a layer of aten's can't become an anchor. Empty where it can.
#pragma once

#include <optional>
#include <string>

#include "pipeline/pass.h"

namespace ipex::passes {

std::optional<std::string> reason_against_prepacking_linear(const Node* linear);
std::optional<std::string> reason_against_prepacking_convolution(const Node* convolution);

}  // namespace ipex::passes
