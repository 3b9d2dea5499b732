// Convolutions that follow one another, as one op: of single pixels, of each channel by itself, of single pixels, as in
// MobileNetV2. The first or the last may be missing.
//
//   ipex::convolution_chain_prepack(layers) -> ConvolutionChainContext
//   ipex::convolution_chain_run(input, context, operands, eager_layout) -> Tensor
//
// It is the same as ipex::convolution_run with each layer in turn. The image in the middle has several times the channels
// of the others; where it is larger than the caches, the layers are computed together, some rows at a time, and it is never
// written to memory. See docs/decisions/convolutions.md.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/library.h>

#include <algorithm>

#include "memory/result_memory.h"
#include "ops/convolution/convolution.h"
#include "ops/convolution/convolution_strips.h"
#include "ops/product/tile_product.h"
#include "packed/chain.h"
#include "packed/door.h"
#include "packed/lazy.h"
#include "packed/memory_format.h"

namespace ipex::runtime {
namespace {

// Where the image between the layers is smaller than this, it stays in the second cache, and the layers take no longer one by
// one; where a layer by itself is multiplied on tiles, in the last cache. Where the weights are larger, reading them again for
// every strip costs more than it saves. Tall windows need many rows from the strip before: where these fill the second cache, a
// strip is a single row.
constexpr int64_t least_elements_between = 64 * 1024, least_beside_tiles = 512 * 1024;
constexpr int64_t few_kept_rows = 4, most_kept_elements = 48 * 1024;
constexpr int64_t most_weight_elements = 128 * 1024;

class ConvolutionChainContext final : public Chain<ConvolutionContext> {
 public:
  explicit ConvolutionChainContext(std::vector<Layer> own) : Chain("ipex::convolution_chain_run", std::move(own)) {
    ConvolutionContext::check_that_layers_fit("ipex::convolution_chain_run", layers());
  }

  // `operands` are the last layer's.
  at::Tensor run(at::Tensor y, const std::vector<at::Tensor>& operands, bool eager_layout) const {
    if (at::Tensor result = run_in_float(y, operands, eager_layout); result.defined()) return result;
    if (at::Tensor result = run_at_once(y, operands, eager_layout); result.defined()) return result;
    const std::vector<at::Tensor> none;
    for (const Layer& layer : layers()) {
      RECORD_FUNCTION("ipex::convolution_run", {});
      y = layer->run(y, layer == layers().back() ? operands : none, eager_layout);
    }
    return y;
  }

 private:
  // The layers by what they do; null for one that is not there.
  struct Roles {
    const ConvolutionContext *expand = nullptr, *depthwise = nullptr, *project = nullptr;
  };

  // None where kernels of our own do not do that.
  std::optional<Roles> roles() const {
    Roles roles;
    for (const Layer& layer : layers()) {
      const ConvolutionContext*& role = layer->is_depthwise() ? roles.depthwise
                                        : roles.depthwise     ? roles.project
                                                              : roles.expand;
      if (role || (&role != &roles.depthwise && !layer->panels_for_pixels())) return std::nullopt;
      role = layer.get();
    }
    return roles.depthwise ? std::optional(roles) : std::nullopt;
  }

  // Whether the image between the layers is large enough, and what is read for every strip, or kept, small enough.
  static bool is_worth_it(const Roles& roles, const at::Tensor& input) {
    const auto weight_elements = [](const ConvolutionContext* layer) {
      return layer ? layer->input_channels() * layer->output_channels() : 0;
    };
    const int64_t pixels = input.numel() / input.size(1), channels = roles.depthwise->input_channels();
    const auto has_tiles = [&](const ConvolutionContext* layer) {
      return layer && gains_by_tiles(pixels, layer->input_channels(), layer->output_channels(), parts_of_floats);
    };
    const bool is_beside_tiles = has_tiles(roles.expand) || has_tiles(roles.project);
    const int64_t kept_rows = roles.depthwise->shared_rows();
    return pixels * channels >= (is_beside_tiles ? least_beside_tiles : least_elements_between) &&
           (kept_rows <= few_kept_rows || kept_rows * input.size(3) * channels <= most_kept_elements) &&
           weight_elements(roles.expand) + weight_elements(roles.project) <= most_weight_elements;
  }

  // Whether it is channels-last and nothing else, and so is every image that eager makes of it.
  static bool is_channels_last(const at::Tensor& image) {
    return image.suggest_memory_format() == at::MemoryFormat::ChannelsLast &&
           image.is_contiguous(at::MemoryFormat::ChannelsLast) && !image.is_contiguous();
  }

  // One that is only spoken of.
  static at::Tensor image_of(at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions(at::kMeta).memory_format(at::MemoryFormat::ChannelsLast));
  }

  // The layers with weights of 16 bits, computed in float32 all. Undefined where one would not be.
  at::Tensor run_in_float(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const {
    const auto is_in_float = [&](const Layer& layer) {
      return layer->is_in_float() && layer->dtype() == layers().front()->dtype();
    };
    if (!std::all_of(layers().begin(), layers().end(), is_in_float) ||
        !layers().front()->accepts(input, eager_layout)) {
      return {};
    }
    std::vector<at::Tensor> wide;
    if (layers().back()->widen(operands, wide) < layers().back()->post_op_texts().size()) return {};
    const auto make = [&] {
      std::vector<Layer> floats;
      for (const Layer& layer : layers()) {
        const auto op = layer->in_float(layer->post_op_texts().size());
        floats.push_back(Layer::reclaim_copy(static_cast<ConvolutionContext*>(op.get())));
      }
      return std::make_unique<const ConvolutionChainContext>(std::move(floats));
    };
    const at::Tensor y = in_float_.get(make)->run(converted(input, at::kFloat), wide, eager_layout);
    return converted(y, layers().front()->dtype());
  }

  // Undefined where a layer would go another way, or it is not worth it.
  at::Tensor run_at_once(const at::Tensor& input, const std::vector<at::Tensor>& operands, bool eager_layout) const {
    const auto found = roles();
    if (!found || !layers().front()->accepts(input, eager_layout) || !is_worth_it(*found, input)) return {};
    const auto& [expand, depthwise, project] = *found;
    at::DimVector sizes(input.sizes());
    sizes[1] = depthwise->input_channels();
    const at::Tensor expanded = image_of(sizes), convolved = image_of(depthwise->kernel_result_sizes(sizes));
    sizes = convolved.sizes();
    sizes[1] = layers().back()->output_channels();
    for (const at::Tensor& image : {input, expanded, convolved, image_of(sizes)}) {
      if (!is_channels_last(image)) return {};
    }
    ConvolutionContext::KernelCall first, middle, last;
    const std::vector<at::Tensor> none;
    if (depthwise->is_brgemm_at_fault(expanded) || (!project && !operands.empty()) ||
        (expand && !expand->begin(first, input, none, eager_layout)) ||
        !depthwise->begin(middle, expanded, none, eager_layout) ||
        (project && !project->begin(last, convolved, operands, eager_layout))) {
      return {};
    }
    const auto layer_of = [](const ConvolutionContext* layer, const ConvolutionContext::KernelCall& call) {
      return layer ? std::optional(PixelLayer{*layer->panels_for_pixels(), call.steps}) : std::nullopt;
    };
    const at::Tensor weight = depthwise->depthwise_weight();
    const at::Tensor result = empty_result(sizes, input.options().memory_format(at::MemoryFormat::ChannelsLast));
    ConvolutionStrips strips = depthwise->strips(input, weight, middle.steps, result);
    strips.expand = layer_of(expand, first);
    strips.project = layer_of(project, last);
    convolve(strips);
    return result;
  }

  Lazy<ConvolutionChainContext> in_float_;
};

using Context = c10::intrusive_ptr<ConvolutionChainContext>;

Context convolution_chain_prepack(std::vector<ConvolutionChainContext::Layer> layers) {
  return c10::make_intrusive<ConvolutionChainContext>(std::move(layers));
}

TORCH_LIBRARY_FRAGMENT(ipex, m) {
  define_chain<ConvolutionChainContext>(m, "ConvolutionChainContext");
  define(m,
         "convolution_chain_prepack(__torch__.torch.classes.ipex.ConvolutionContext[] layers) -> "
         "__torch__.torch.classes.ipex.ConvolutionChainContext",
         convolution_chain_prepack);
  define(m,
         "convolution_chain_run(Tensor input, __torch__.torch.classes.ipex.ConvolutionChainContext context, "
         "Tensor[] operands, bool eager_layout) -> Tensor",
         OnStack{run_boxed<ConvolutionChainContext>});
}

}  // namespace
}  // namespace ipex::runtime
