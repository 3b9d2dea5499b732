#pragma once

namespace ipex::runtime {

// Ends the message of what only a damaged file can hold.
constexpr const char* damaged = ". The model file is damaged: save it again.";

}  // namespace ipex::runtime
