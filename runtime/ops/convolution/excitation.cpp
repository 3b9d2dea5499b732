// What the channels of an image are multiplied by in squeeze and excitation: their averages, and convolutions of that single
// pixel, as one op.
//
//   ipex::excitation_prepack(layers) -> ExcitationContext
//   ipex::excitation_run(image, context, dim) -> Tensor, [images, channels, 1, 1]
//
// It is the same as ipex::mean(image, dim, True), and ipex::convolution_run with each layer in turn, but for strides. A layer has
// microseconds to compute: where all of them run on a kernel of our own, the call is checked once, and what lies between is no tensor.
#include <ATen/record_function.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include "memory/result_memory.h"
#include "ops/convolution/convolution.h"
#include "ops/layout/pooling.h"
#include "packed/chain.h"
#include "packed/door.h"

namespace ipex::runtime {
namespace {

class ExcitationContext final : public Chain<ConvolutionContext> {
 public:
  explicit ExcitationContext(std::vector<Layer> own) : Chain("ipex::excitation_run", std::move(own)) {
    ConvolutionContext::check_that_layers_fit("ipex::excitation_run", layers());
  }

  at::Tensor run(const at::Tensor& image, at::IntArrayRef dim) const {
    if (can_run_at_once(image)) return run_at_once(image);
    at::Tensor y = averages_as_pixels(image, dim);
    for (const Layer& layer : layers()) {
      RECORD_FUNCTION("ipex::convolution_run", {});
      y = layer->run(y, {}, /*eager_layout=*/false);
    }
    return y;
  }

 private:
  bool can_run_at_once(const at::Tensor& image) const {
    return can_average(image) && image.size(0) <= most_rows_of_a_small_product &&
           image.size(1) == layers().front()->input_channels() &&
           std::all_of(layers().begin(), layers().end(), [](const Layer& layer) { return layer->multiplies_pixels(); });
  }

  at::Tensor run_at_once(const at::Tensor& image) const {
    const int64_t images = image.size(0);
    using Pixels = c10::SmallVector<float, 1024>;
    Pixels pixels(images * image.size(1)), next;
    average_images(image, pixels.data());
    const at::Tensor result = empty_result({images, layers().back()->output_channels(), 1, 1}, image.options());
    for (size_t i = 0; i < layers().size(); ++i) {
      const Layer& layer = layers()[i];
      const bool is_last = i + 1 == layers().size();
      if (!is_last) next.resize(images * layer->output_channels());
      layer->multiply_pixels({pixels.data(), images, layer->input_channels()},
                             is_last ? result.mutable_data_ptr<float>() : next.data());
      std::swap(pixels, next);
    }
    return result;
  }
};

using Context = c10::intrusive_ptr<ExcitationContext>;

Context excitation_prepack(std::vector<ExcitationContext::Layer> layers) {
  return c10::make_intrusive<ExcitationContext>(std::move(layers));
}

at::Tensor excitation_run(const at::Tensor& image, const Context& context, at::IntArrayRef dim) {
  return context->run(image, dim);
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_chain<ExcitationContext>(m, "ExcitationContext");
  define(m,
         "excitation_prepack(__torch__.torch.classes.ipex.ConvolutionContext[] layers) -> "
         "__torch__.torch.classes.ipex.ExcitationContext",
         excitation_prepack);
  define(m, "excitation_run(Tensor image, __torch__.torch.classes.ipex.ExcitationContext context, int[] dim) -> Tensor",
         excitation_run);
}

}  // namespace
}  // namespace ipex::runtime
