#include "packed/interleave_channels.h"

#include <algorithm>

#include "kernels/kernels.h"
#include "packed/call_conditions.h"
#include "packed/memory_format.h"
#include "threads/grain.h"
#include "threads/parallel.h"

namespace ipex::runtime {
namespace {

bool has_few_channels(const at::Tensor& image) {
  const bool is_byte = image.scalar_type() == at::kByte && is_plain_cpu(image);
  return image.size(1) > 1 && image.size(1) <= 4 && image.numel() > 0 && image.is_contiguous() &&
         (is_byte || (is_plain_cpu_float(image) && !wants_gradient(image)));
}

template <typename T>
void interleave_channels(const at::Tensor& image, const at::Tensor& y,
                         void (*shuffle)(const T*, int64_t, int64_t, int64_t, int64_t, T*)) {
  const T* from = image.const_data_ptr<T>();
  T* to = y.mutable_data_ptr<T>();
  // In blocks of pixels, so that one image is enough for all threads.
  constexpr int64_t pixels_of_a_block = 256, elements_worth_waking = 32768;
  const int64_t channels = image.size(1), pixels = image.numel() / image.size(0) / channels;
  const int64_t blocks = at::divup(pixels, pixels_of_a_block), pieces = image.size(0) * blocks;
  parallel_for(pieces, grain_of(pieces, image.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end;) {
      // As many blocks of one image as there are.
      const int64_t at = i / blocks, block = i % blocks, count = std::min(end - i, blocks - block);
      const int64_t first = block * pixels_of_a_block, last = std::min(pixels, first + count * pixels_of_a_block);
      shuffle(from + at * channels * pixels + first, 1, channels, last - first, pixels,
              to + (at * pixels + first) * channels);
      i += count;
    }
  });
}

}  // namespace

at::Tensor channels_last_result(const at::Tensor& image, at::MemoryFormat format) {
  if (!has_few_channels(image) || image.is_contiguous(format)) return contiguous_result(image, format);
  const at::Tensor y = empty_result(image.sizes(), image.options().memory_format(format));
  if (image.scalar_type() == at::kByte) {
    interleave_channels(image, y, kernels().channels.shuffle_bytes);
  } else {
    interleave_channels(image, y, kernels().channels.shuffle);
  }
  return y;
}

}  // namespace ipex::runtime
