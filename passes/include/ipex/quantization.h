// Computing in 8 bits with scales that calibration data gave: see ipex.quantization in Python, which makes these.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <map>
#include <string>
#include <vector>

namespace ipex {

struct Quantization {
  // How the 8-bit numbers of one tensor stand for floats: value = (number - zero_point) * scale.
  struct Scale {
    double scale;
    int64_t zero_point;
    // What multiplies its last dimension first, and divides the weight of the linear that reads it. Undefined for none.
    at::Tensor factors;
  };

  // Whether the model is only prepared: it then computes in floats, and observers see what its layers read.
  bool observes = false;
  // Of the tensors that observers have seen, by the observer's key. A layer without one stays in float.
  std::map<std::string, Scale> scales;
  // Layers that stay in float: their module paths, or those of modules that contain them.
  std::vector<std::string> float_layers;
  // Whether the products of attention compute in 8 bits too.
  bool attention = true;
  // Whether tables of embeddings become rows of 8-bit numbers too.
  bool embeddings = false;
  // Whether layers compute in 8 bits on a CPU without int8 instructions too, where floats are faster.
  bool forced = false;
};

// Linears whose weights become integers or short floats, and lstm and gru where inputs are rounded too. No data is needed.
struct QuantizedLinears {
  std::string format = "int8";  // int4, nf4, bfloat16, float8_e4m3fn, float8_e5m2
  // Whether a call rounds its inputs to 8 bits too, row by row. Weights then are int8, with a scale for each output.
  bool rounds_inputs = false;
  // How many inputs share a scale: a multiple of 8, or 0 for all. Not asked for bfloat16, which has none.
  int64_t group_size = 0;
  bool symmetric = true;
  // Whether tables of embeddings become rows of 8-bit numbers too, whatever the format.
  bool embeddings = false;
  // As above.
  std::vector<std::string> float_layers;
};

}  // namespace ipex
