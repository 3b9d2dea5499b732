// What a model takes, as the server is told: "float32:*x3x224x224", one for each input. A star is any size; the first
// dimension is the batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>
#include <vector>

namespace server {

struct InputSpec {
  at::ScalarType dtype;
  std::vector<std::optional<int64_t>> sizes;  // nothing for any
};

// Throws std::invalid_argument for another text.
InputSpec parse_input(const std::string& text);

// Throws std::invalid_argument, with a sentence for the client, unless these are inputs for a call.
void check_inputs(const std::vector<InputSpec>& specs, const std::vector<at::Tensor>& inputs);

// Inputs of so many rows, to warm up with: zeros, of size 1 where any will do.
std::vector<at::Tensor> example_inputs(const std::vector<InputSpec>& specs, int64_t rows);

}  // namespace server
