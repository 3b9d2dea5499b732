// The borders of a stretch of the graph that runs on channels-last activations.
//
//   ipex::to_channels_last(x, spatial_rank) -> Tensor    on the way in
//   ipex::is_channels_last(x, spatial_rank) -> bool      asked of the same x: then eager's layout is no other (in 1-d
//                                                        only that of a single place)
//   ipex::restore_layout(y, is_channels_last) -> Tensor  on the way out: contiguous, as eager has it, if it is another
//
// `spatial_rank` is that of the convolutions in the stretch. What is no image of that rank stays as it is.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/library.h>

#include <algorithm>

#include "kernels/kernels.h"
#include "packed/call_conditions.h"
#include "packed/memory_format.h"
#include "threads/grain.h"

namespace ipex::runtime {
namespace {

bool is_image(const at::Tensor& x, int64_t spatial_rank) {
  return x.layout() == at::kStrided && (x.dim() == spatial_rank + 1 || x.dim() == spatial_rank + 2);
}

// Images of few channels, as most models get. aten copies them element by element.
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
  at::parallel_for(0, pieces, grain_of(pieces, image.numel(), elements_worth_waking), [&](int64_t begin, int64_t end) {
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

at::Tensor with_channels_interleaved(const at::Tensor& image, at::MemoryFormat format) {
  const at::Tensor y = empty_result(image.sizes(), image.options().memory_format(format));
  if (image.scalar_type() == at::kByte) {
    interleave_channels(image, y, kernels().channels.shuffle_bytes);
  } else {
    interleave_channels(image, y, kernels().channels.shuffle);
  }
  return y;
}

at::Tensor to_channels_last(const at::Tensor& x, int64_t spatial_rank) {
  // There aten computes all of it, and the layout shows: its instance_norm takes a channels-last gradient for a contiguous
  // one, and its 16-bit convolutions have NaN beside an infinity in one layout and not in the other.
  const bool is_left_to_aten = wants_gradient(x) || at::autocast::is_autocast_enabled(at::kCPU);
  if (!is_image(x, spatial_rank) || is_left_to_aten) return x;
  const at::Tensor image = as_batched_image(x, spatial_rank);
  const at::MemoryFormat format = channels_last_of(spatial_rank);
  const bool interleaves = has_few_channels(image) && !image.is_contiguous(format);
  const at::Tensor converted =
      interleaves ? with_channels_interleaved(image, format) : contiguous_result(image, format);
  return converted.is_same(image) ? x : as_original_image(converted, x, spatial_rank);
}

bool is_channels_last(const at::Tensor& x, int64_t spatial_rank) {
  return (spatial_rank > 1 || x.is_contiguous()) && is_image(x, spatial_rank) &&
         as_batched_image(x, spatial_rank).suggest_memory_format() == channels_last_of(spatial_rank);
}

at::Tensor restore_layout(const at::Tensor& y, bool is_channels_last) {
  return is_channels_last || y.layout() != at::kStrided ? y : with_format(y, at::MemoryFormat::Contiguous);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  m.def("to_channels_last(Tensor(a) x, int spatial_rank) -> Tensor(a)", to_channels_last);
  m.def("is_channels_last(Tensor x, int spatial_rank) -> bool", is_channels_last);
  m.def("restore_layout(Tensor(a) y, bool is_channels_last) -> Tensor(a)", restore_layout);
}

}  // namespace
}  // namespace ipex::runtime
