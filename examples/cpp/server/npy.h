// Tensors as bytes: NumPy's .npy format, one array after another. numpy.save writes it and numpy.load reads it; a client
// in another language writes a line of text and the numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace server {

// Throws std::invalid_argument where the bytes are anything but whole arrays.
std::vector<at::Tensor> decode_npy(const std::string& bytes);

// bfloat16, which NumPy has not, is written as float32.
std::string encode_npy(const std::vector<at::Tensor>& tensors);

}  // namespace server
