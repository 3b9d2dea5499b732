// Averages of whole images.
#pragma once

#include <ATen/core/Tensor.h>

namespace ipex::runtime {

// Whether average_images() takes the images: float32, channels-last and nothing to differentiate.
bool can_average(const at::Tensor& images);

// The averages of each image's channels, one image after the other.
void average_images(const at::Tensor& images, float* to);

// ipex::mean over whole images, the dimensions kept. `dim` has the last two: an image without a batch has others from the front.
at::Tensor averages_as_pixels(const at::Tensor& images, at::IntArrayRef dim);

}  // namespace ipex::runtime
