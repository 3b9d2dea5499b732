// Elementwise operations on several tensors, one after the other, in one pass over memory.
//
// The result is cut into blocks whose values fit the first cache. Each operation is done for a whole block before the next
// one, so that only inputs and the result touch memory.
#pragma once

#include <cstdint>

#include "kernels/operation.h"

namespace ipex::runtime {

// How elements lie in memory. A program of floats may read and give such of 16 bits, and bytes.
enum class ElementFormat { of_program, bytes, bfloat16, float16 };

// A result of the program. Bytes are made of floats as quantize.h has it.
struct ProgramResult {
  void* data = nullptr;  // null: none
  ElementFormat format = ElementFormat::of_program;
  float inverse_scale = 0, zero_point = 0;
};

// Values are numbered: the inputs first, then places for what steps give.
struct ProgramStep {
  Operation operation;
  int y, other, third;  // y where there is none
  int result;
  float a, b, c;
  ProgramResult kept = {};  // where its elements go as well
};

// How the elements of an input lie under a block of the result.
enum class InputSpread {
  as_result,   // one after the other
  same_block,  // the same for every block
  strided
};

struct ProgramInput {
  const void* data;
  InputSpread spread;
  const int64_t* strides;  // per dimension of the program
  ElementFormat format = ElementFormat::of_program;
  float scale = 0, zero_point = 0;  // a byte stands for (byte - zero_point) * scale
};

// The results are dense and lie alike. Their dimensions are given from the outermost to the innermost. The last step gives one.
struct Program {
  static constexpr int most_values = 24;  // places included
  static constexpr int64_t most_dimensions = 8;
  static constexpr int64_t block_floats = 16384;  // for the blocks of all values

  const ProgramStep* steps;
  int64_t step_count;
  const ProgramInput* inputs;
  int64_t input_count, value_count;
  const int64_t* sizes;
  int64_t dimensions;
  int64_t elements, block;
};

// What the last step gives, numbered [outer, summed, inner], is summed instead of stored. Blocks are whole rows of `inner`, or
// parts of one; where inner is 1, whole rows of `summed` or parts of one.
struct ProgramSums {
  int64_t summed, inner;
  float divisor;  // 1, or of means
  void* sums;     // [outer, inner], in the format of the program

  // Pieces of work, of some sums each.
  int64_t pieces(const Program& program) const {
    const int64_t outer = program.elements / (summed * inner), block = program.block;
    if (inner > 1) return outer * (block < inner ? (inner + block - 1) / block : 1);
    return block < summed ? outer : (outer * summed + block - 1) / block;
  }
};

struct ProgramKernels {
  // Computes some blocks. Numbers of 16 bits are rounded after each step, as ops that follow one another round them.
  void (*floats)(const Program& program, int64_t first_block, int64_t end_block);
  void (*bfloat16)(const Program& program, int64_t first_block, int64_t end_block);
  void (*float16)(const Program& program, int64_t first_block, int64_t end_block);
};

struct ProgramSumKernels {
  // Computes some pieces. Numbers of 16 bits are summed as floats.
  void (*floats)(const Program& program, const ProgramSums& sums, int64_t first_piece, int64_t end_piece);
  void (*bfloat16)(const Program& program, const ProgramSums& sums, int64_t first_piece, int64_t end_piece);
  void (*float16)(const Program& program, const ProgramSums& sums, int64_t first_piece, int64_t end_piece);
};

}  // namespace ipex::runtime
